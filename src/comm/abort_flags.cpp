// SPDX-License-Identifier: Apache-2.0
#include "comm/abort_flags.h"

#include <algorithm>
#include <atomic>

namespace trireme::comm {

void AbortFlags::add(int32_t& flag) {
  const std::scoped_lock lock(mutex_);
  flags_.insert(&flag);
  std::atomic_ref(flag).store(value_);
}

void AbortFlags::remove(int32_t& flag) {
  const std::scoped_lock lock(mutex_);
  flags_.erase(&flag);
}

void AbortFlags::raise(int32_t to) noexcept {
  const std::scoped_lock lock(mutex_);
  value_ = std::max(value_, to);
  for (int32_t* flag : flags_) std::atomic_ref(*flag).store(value_);
}

int32_t AbortFlags::value() const {
  const std::scoped_lock lock(mutex_);
  return value_;
}

}  // namespace trireme::comm
