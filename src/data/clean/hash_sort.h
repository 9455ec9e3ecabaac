// SPDX-License-Identifier: Apache-2.0
// Sorting by hashes on many threads, and loops on many threads that may throw.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <vector>

#include "base/system/threads.h"

namespace trireme::data {

// Calls task(i) for every i in [0, count) on the threads of the pool. Rethrows one of the errors
// after all tasks ended.
template <typename Task>
void parallel_for(base::ThreadPool& pool, int64_t count, Task&& task) {
  std::mutex mutex;  // guards error
  std::exception_ptr error;
  pool.for_each(count, [&](int64_t i) {
    try {
      task(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

inline constexpr size_t hash_buckets = 256;

// Items in hash_buckets ranges by the highest bits of their hash; equal hashes are in one range.
template <typename Item>
struct HashSorted {
  std::vector<Item> items;
  std::array<size_t, hash_buckets + 1> ends{};  // range i is [ends[i], ends[i + 1])

  std::span<const Item> bucket(size_t i) const {
    return std::span(items).subspan(ends[i], ends[i + 1] - ends[i]);
  }
};

// `visit` is called twice with a function emit(hash, item) and must emit the same items; one copy
// of them is held. Sorts the items of every range by Item's operator<.
template <typename Item, typename Visit>
HashSorted<Item> sort_by_hash(base::ThreadPool& pool, Visit&& visit) {
  HashSorted<Item> sorted;
  visit([&](uint64_t hash, const Item&) { ++sorted.ends[(hash >> 56) + 1]; });
  for (size_t i = 0; i < hash_buckets; ++i) sorted.ends[i + 1] += sorted.ends[i];
  sorted.items.resize(sorted.ends.back());
  std::array<size_t, hash_buckets> next{};
  std::copy_n(sorted.ends.begin(), hash_buckets, next.begin());
  visit([&](uint64_t hash, const Item& item) { sorted.items[next[hash >> 56]++] = item; });
  parallel_for(pool, hash_buckets, [&](int64_t i) {
    const auto begin = sorted.items.begin();
    std::sort(begin + static_cast<std::ptrdiff_t>(sorted.ends[static_cast<size_t>(i)]),
              begin + static_cast<std::ptrdiff_t>(sorted.ends[static_cast<size_t>(i) + 1]));
  });
  return sorted;
}

}  // namespace trireme::data
