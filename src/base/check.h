// SPDX-License-Identifier: Apache-2.0
// TRIREME_CHECK: a broken invariant is a bug. It is always on, prints the condition and the values,
// and aborts. Conditions that a user or the world can cause are not bugs: they throw (error.h).
#pragma once

#include <fmt/core.h>

#include <string>

namespace trireme::base {

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message) noexcept;

}  // namespace trireme::base

#define TRIREME_CHECK(condition, ...)                                                          \
  do {                                                                                         \
    if (!(condition)) [[unlikely]] {                                                           \
      ::trireme::base::check_failed(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
    }                                                                                          \
  } while (false)
