// SPDX-License-Identifier: Apache-2.0
// Transfers in flight at one time: each of a few threads makes one after the other.
#pragma once

#include <cstdint>
#include <functional>

namespace trireme::ckpt {

struct IoOptions {
  // Transfers of at most 1 MiB that are in flight at one time, each on a thread with a buffer of
  // that size.
  int queue_depth = 8;
  // After a file was written and synced, it is read again and compared with the hashes.
  bool reread = false;
};

// Calls work(worker, index) for every index below `count`, worker in [0, queue_depth): calls of one
// worker come one after the other, so that it may own a buffer. After the first exception no
// further call begins, and it is thrown again once all threads have ended.
void for_each_in_flight(int queue_depth, int64_t count,
                        const std::function<void(int worker, int64_t index)>& work);

}  // namespace trireme::ckpt
