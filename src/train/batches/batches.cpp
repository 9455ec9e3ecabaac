// SPDX-License-Identifier: Apache-2.0
#include "train/batches/batches.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/system/rank_activity.h"
#include "base/token_label.h"
#include "obs/clock.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::train {
namespace {

void copy_batch(const data::Batch& from, const engine::HostMicrobatch& to) {
  TRIREME_CHECK(from.tokens.size() == to.tokens.size(), "a batch of {} tokens for {}",
                from.tokens.size(), to.tokens.size());
  std::copy(from.tokens.begin(), from.tokens.end(), to.tokens.begin());
  std::copy(from.labels.begin(), from.labels.end(), to.labels.begin());
  std::copy(from.positions.begin(), from.positions.end(), to.positions.begin());
  std::copy(from.seq_offsets.begin(), from.seq_offsets.end(), to.seq_offsets.begin());
}

// Returns a hash of the content of sample `index` of a batch. Labels without loss are the same to
// it, since older checkpoints do not distinguish them.
uint64_t content_hash(const data::Batch& batch, size_t index) {
  const size_t length = batch.tokens.size() / batch.samples.size();
  const size_t begin = index * length;
  uint64_t hash = 0;
  for (const auto* part : {&batch.tokens, &batch.labels, &batch.positions}) {
    for (size_t i = begin; i < begin + length; ++i) {
      hash = base::hash_of(hash ^ static_cast<uint32_t>(std::max((*part)[i], base::masked_label)));
    }
  }
  for (const int32_t offset : batch.seq_offsets) {
    const auto at = static_cast<size_t>(offset);
    if (at >= begin && at < begin + length) hash = base::hash_of(hash ^ (at - begin));
  }
  return hash;
}

// Returns the sum of hashes of samples and their places in the batch of a step, of which they are
// micro-batch `microbatch`.
uint64_t place_hash(std::span<const int64_t> samples, int microbatch) {
  auto place = static_cast<uint64_t>(microbatch) * samples.size();
  uint64_t sum = 0;
  for (const int64_t sample : samples) {
    sum += base::hash_of(base::hash_of(static_cast<uint64_t>(sample)) + place++);
  }
  return sum;
}

// Returns the split of a step into micro-batches, over all ranks.
data::BatchSplit whole_step(const spec::Plan& plan) {
  const int count = plan.layout.logical_dp * spec::worker_microbatches(plan);
  const data::BatchSplit split{.global_batch = count * plan.layout.micro_batch,
                               .micro_batches = count};
  data::check_split(split);
  return split;
}

std::vector<int> microbatches_of(const spec::Plan& plan, const spec::Coord& coord) {
  std::vector<int> all;
  for (int index = 0; index < plan.schedule.microbatches; ++index) {
    all.push_back(static_cast<int>(spec::global_microbatch(plan, coord, index)));
  }
  return all;
}

}  // namespace

TrainBatches::TrainBatches(const data::SampleProvider& sampler, const spec::Plan& plan,
                           const spec::Coord& coord, int64_t first_step, int64_t shift)
    : microbatches_(microbatches_of(plan, coord)),
      hashes_(microbatches_.size()),
      place_hashes_(microbatches_.size()),
      filled_samples_(microbatches_.size()),
      split_(whole_step(plan)),
      shift_(shift),
      prefetcher_(sampler,
                  [this](int64_t batch, std::vector<int64_t>& out) {
                    const auto each = static_cast<int64_t>(microbatches_.size());
                    data::batch_positions(split_, batch / each,
                                          microbatches_[static_cast<size_t>(batch % each)], out);
                    for (int64_t& position : out) position += shift_;
                  },
                  {.first_batch = first_step * static_cast<int64_t>(microbatches_.size()),
                   .depth = 2 * static_cast<int>(microbatches_.size())}) {}

uint64_t TrainBatches::step_hash() const {
  return std::accumulate(place_hashes_.begin(), place_hashes_.end(), uint64_t{0});
}

void TrainBatches::fill(int index, const engine::HostMicrobatch& out) {
  const double called = obs::steady_seconds();
  std::optional<base::ActivityPhaseScope> waits(base::data_phase);
  const data::Batch& batch = prefetcher_.next();
  waits.reset();
  waited_seconds_ += obs::steady_seconds() - called;
  copy_batch(batch, out);
  uint64_t& hash = hashes_.at(static_cast<size_t>(index));
  hash = 0;
  for (const int64_t sample : batch.samples) hash += base::hash_of(static_cast<uint64_t>(sample));
  place_hashes_.at(static_cast<size_t>(index)) =
      place_hash(batch.samples, microbatches_[static_cast<size_t>(index)]);
  const size_t seq_len = batch.labels.size() / batch.samples.size();
  std::vector<Filled>& filled = filled_samples_[static_cast<size_t>(index)];
  filled.clear();
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const auto first = batch.labels.begin() + static_cast<ptrdiff_t>(i * seq_len);
    const auto labels = std::count_if(first, first + static_cast<ptrdiff_t>(seq_len),
                                      [](int32_t label) { return label >= 0; });
    filled.push_back({batch.samples[i], labels});
  }
  if (filled_++ >= std::ssize(microbatches_)) return;
  for (size_t i = 0; i < batch.samples.size(); ++i) first_content_hash_ += content_hash(batch, i);
}

void check_samples(const engine::StepReport& report, const spec::Plan& plan, int64_t step,
                   int64_t shift) {
  if (!report.same_samples) {
    throw base::Error(
        fmt::format("step {}: ranks along tp consumed different samples; no later result can be "
                    "trusted",
                    step + 1));
  }
  const int64_t batch = whole_step(plan).global_batch;
  const int64_t first = step * batch + shift;
  uint64_t wanted = 0;
  for (int64_t i = 0; i < batch; ++i) {
    wanted += base::hash_of(static_cast<uint64_t>(first + i));
  }
  if (report.sample_hash == wanted) return;
  throw base::Error(fmt::format(
      "step {}: samples {}..{} were not each consumed exactly once: the sum of their hashes is "
      "{:016x} and should be {:016x}; a sample is missing or duplicated",
      step + 1, first, first + batch - 1, report.sample_hash, wanted));
}

SequentialBatches::SequentialBatches(const data::SampleProvider& sampler, int64_t sequences,
                                     int64_t samples)
    : sampler_(sampler), sequences_(sequences), samples_(samples) {
  TRIREME_CHECK(samples <= sampler.samples(), "{} of {} samples", samples, sampler.samples());
}

void SequentialBatches::fill(int /*index*/, const engine::HostMicrobatch& out) {
  const int64_t left = std::max<int64_t>(0, samples_ - next_);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < sequences_; ++i) positions.push_back(next_++);
  data::fill_batch(sampler_, positions, batch_);
  if (left < sequences_) {
    std::fill(batch_.labels.begin() + left * sampler_.seq_len(), batch_.labels.end(), -1);
  }
  copy_batch(batch_, out);
}

}  // namespace trireme::train
