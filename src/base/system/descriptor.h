// SPDX-License-Identifier: Apache-2.0
// Descriptor: owns a POSIX file descriptor and closes it on scope exit.
#pragma once

#include <unistd.h>

#include <utility>

namespace trireme::base {

// A negative value is the failure of open(): it is kept for the caller and never closed.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }

  int value() const { return value_; }
  // Transfers ownership to the caller.
  [[nodiscard]] int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

}  // namespace trireme::base
