// SPDX-License-Identifier: Apache-2.0
// What the shim library does to the machine that a run sees. The blind test maps this structure
// from a file, and so does the shim in every process of the run, so that trouble begins when the
// test wants it to.
#pragma once

#include <atomic>

namespace trireme::tests {

struct ShimControl {
  std::atomic<double> send_seconds;   // every write of data to a TCP socket takes so much longer
  std::atomic<double> page_seconds;   // every access to a page of the data that is not in memory
  std::atomic<double> sync_seconds;   // every fsync
  std::atomic<double> clock_seconds;  // added to the wall clock
};
static_assert(std::atomic<double>::is_always_lock_free);

}  // namespace trireme::tests
