// SPDX-License-Identifier: Apache-2.0
// AbortFlags: numbers in host memory that a world sets when it is aborted, before it ends any call.
//
// An aborted call may end like a successful one, and the work queued behind it then runs on
// garbage. Work that changes what is kept therefore reads such a number first
// (kernels::GateArgs): a call that an abort has ended ended after the number was set.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

namespace trireme::comm {

class AbortFlags {
 public:
  static constexpr int32_t raised = 1;
  // Raised, and other ranks may have aborted their calls before this one was raised: what this rank
  // has received before may be garbage, too.
  static constexpr int32_t raised_late = 2;

  // Any thread, any time. A number is 0 at first, in memory that the device may read, and only
  // grows. One that is added after raise() is set at once.
  void add(int32_t& flag);
  void remove(int32_t& flag);
  void raise(int32_t to = raised) noexcept;
  int32_t value() const;

 private:
  mutable std::mutex mutex_;  // guards what follows
  int32_t value_ = 0;
  std::set<int32_t*> flags_;
};

}  // namespace trireme::comm
