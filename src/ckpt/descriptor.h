// SPDX-License-Identifier: Apache-2.0
// Descriptor: owns a POSIX file descriptor and closes it on scope exit.
#pragma once

#include <unistd.h>

namespace trireme::ckpt {

// A negative value is the failure of open(): it is kept for the caller to see and never closed.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

}  // namespace trireme::ckpt
