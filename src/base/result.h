// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value, or a message why there is none. For questions whose negative answer is an
// ordinary outcome (is this schedule legal, does a checkpoint exist); an operation that must
// succeed throws instead (error.h).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace trireme::base {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  static Result no(std::string reason) {
    Result result;
    result.reason_ = std::move(reason);
    return result;
  }

  explicit operator bool() const { return value_.has_value(); }
  // REQUIRES: there is a value.
  const T& value() const {
    TRIREME_CHECK(value_.has_value(), "{}", reason_);
    return *value_;
  }
  // Returns why there is no value; empty if there is one.
  const std::string& reason() const { return reason_; }

 private:
  Result() = default;
  std::optional<T> value_;
  std::string reason_;
};

}  // namespace trireme::base
