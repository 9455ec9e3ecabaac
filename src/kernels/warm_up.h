// SPDX-License-Identifier: Apache-2.0
// The first matrix product of a process waits a tenth of a second for cuBLASLt, which loads its
// tables. A WarmUp loads them in a thread, while the engine is made.
#pragma once

#include <thread>

namespace trireme::kernels {

class WarmUp {
 public:
  // Starts the thread: the first object of a process. A library that cannot be used is reported by
  // the ops that need it, not here. REQUIRES: the GPU of this index can be used.
  explicit WarmUp(int gpu);
  // Waits for the thread.
  ~WarmUp() = default;
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace trireme::kernels
