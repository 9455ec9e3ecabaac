// SPDX-License-Identifier: Apache-2.0
// Prepares batches ahead of time on a separate thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "data/samples/batch.h"

namespace trireme::data {

struct PrefetchOptions {
  int64_t first_batch = 0;
  // batches prepared ahead, at least 1; does not change any batch
  int depth = 4;
  std::chrono::seconds deadline{600};  // how long next() waits for the disk
};

// Returns batches first_batch, first_batch + 1, ... without end. One consumer.
class Prefetcher {
 public:
  // Fills `out` with the positions of batch number `batch`. Called on the prefetcher's thread.
  using Positions = std::function<void(int64_t batch, std::vector<int64_t>& out)>;

  // `sampler` (any provider of samples) must outlive the prefetcher. Throws Error if the thread
  // cannot be started.
  Prefetcher(const SampleProvider& sampler, Positions positions, const PrefetchOptions&);
  ~Prefetcher();  // joins
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the next batch, valid until the next call. Rethrows, at its turn and on every later
  // call, an exception that preparing a batch threw; throws IoError if the deadline passes.
  const Batch& next();

 private:
  void fill();
  Batch& slot(int64_t batch) { return ring_[static_cast<size_t>(batch) % ring_.size()]; }

  const SampleProvider& sampler_;
  Positions positions_;
  PrefetchOptions options_;
  std::vector<Batch> ring_;  // depth, and the one that the consumer holds

  std::mutex mutex_;  // guards the fields below; a slot belongs to one side at a time
  std::condition_variable changed_;
  int64_t made_ = 0, taken_ = 0;  // batches
  std::exception_ptr error_;
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace trireme::data
