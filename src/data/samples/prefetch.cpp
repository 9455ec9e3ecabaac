// SPDX-License-Identifier: Apache-2.0
#include "data/samples/prefetch.h"

#include <fmt/core.h>

#include "base/check.h"
#include "base/error.h"
#include "base/system/start_thread.h"

namespace trireme::data {

Prefetcher::Prefetcher(const SampleProvider& sampler, Positions positions,
                       const PrefetchOptions& options)
    : sampler_(sampler), positions_(std::move(positions)), options_(options) {
  TRIREME_CHECK(options.depth >= 1 && options.first_batch >= 0, "depth {}, first batch {}",
                options.depth, options.first_batch);
  ring_.resize(static_cast<size_t>(options.depth) + 1);
  thread_ = base::start_thread("that reads batches ahead", [this] { fill(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const Batch& Prefetcher::next() {
  std::unique_lock lock(mutex_);
  const bool ready =
      changed_.wait_for(lock, options_.deadline, [this] { return made_ > taken_ || error_; });
  if (!ready) {
    throw base::IoError(fmt::format("batch {} was not read within {} s; is the disk hanging?",
                                    options_.first_batch + taken_, options_.deadline.count()));
  }
  if (made_ == taken_) std::rethrow_exception(error_);
  Batch& batch = slot(taken_);
  ++taken_;
  lock.unlock();
  changed_.notify_all();
  return batch;
}

void Prefetcher::fill() {
  std::vector<int64_t> positions;
  for (int64_t batch = 0;; ++batch) {
    {
      std::unique_lock lock(mutex_);
      // The batch returned last is still in use: made_ - taken_ < depth leaves its slot alone.
      changed_.wait(lock, [this] { return stopping_ || made_ - taken_ < options_.depth; });
      if (stopping_) return;
    }
    try {
      positions_(options_.first_batch + batch, positions);
      fill_batch(sampler_, positions, slot(batch));
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      error_ = std::current_exception();
    }
    {
      const std::scoped_lock lock(mutex_);
      if (!error_) ++made_;
    }
    changed_.notify_all();
    if (error_) return;
  }
}

}  // namespace trireme::data
