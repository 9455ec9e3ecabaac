// SPDX-License-Identifier: Apache-2.0
// Parallel transfers: each of a few threads makes one transfer after another.
#pragma once

#include <cstdint>
#include <functional>

namespace trireme::ckpt {

struct IoOptions {
  // Number of transfers (of at most 1 MiB) in flight, each on a thread with a buffer of that size.
  int queue_depth = 8;
  // After a file has been written and synced, read it back and compare it with the hashes.
  bool reread = false;
};

// Calls work(worker, index) for every index below `count`, with worker in [0, queue_depth). Calls
// of one worker are sequential, so it may own a buffer. After the first exception no further call
// begins; the exception is rethrown once all threads have ended.
void for_each_in_flight(int queue_depth, int64_t count,
                        const std::function<void(int worker, int64_t index)>& work);

}  // namespace trireme::ckpt
