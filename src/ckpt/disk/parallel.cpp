// SPDX-License-Identifier: Apache-2.0
#include "ckpt/disk/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

namespace trireme::ckpt {

void for_each_in_flight(int queue_depth, int64_t count,
                        const std::function<void(int worker, int64_t index)>& work) {
  TRIREME_CHECK(queue_depth >= 1, "{} transfers in flight", queue_depth);
  std::atomic<int64_t> next{0};
  std::mutex mutex;  // guards first
  std::exception_ptr first;
  const auto serve = [&](int worker) {
    try {
      for (int64_t index = next++; index < count; index = next++) work(worker, index);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (first == nullptr) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    const int64_t helpers = std::min<int64_t>(queue_depth, count) - 1;
    try {
      for (int64_t i = 0; i < helpers; ++i) threads.emplace_back(serve, static_cast<int>(i) + 1);
    } catch (const std::system_error&) {
      // The system refuses more threads; the existing ones do the work.
    }
    serve(0);
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace trireme::ckpt
