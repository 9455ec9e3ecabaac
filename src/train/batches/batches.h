// SPDX-License-Identifier: Apache-2.0
// Samples as the engine's source of micro-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/samples/prefetch.h"
#include "data/samples/sample_provider.h"
#include "engine/engine.h"
#include "engine/step/input.h"
#include "spec/plan.h"

namespace trireme::train {

// The training micro-batches of one rank, prefetched by a thread, in the order of steps from
// `first_step` (counted from 0) on. Which samples make micro-batch i of a step
// (spec::global_microbatch) does not depend on the number of ranks. Step s takes the samples from
// s * batch + `shift` on; the shift is 0 unless the batch size changed during the run.
// REQUIRES: samples have the plan's seq_len.
class TrainBatches final : public engine::MicrobatchSource {
 public:
  TrainBatches(const data::SampleProvider&, const spec::Plan&, const spec::Coord&,
               int64_t first_step, int64_t shift = 0);
  void fill(int index, const engine::HostMicrobatch&) override;
  uint64_t sample_hash(int index) const override { return hashes_.at(static_cast<size_t>(index)); }
  // Returns a hash of the samples that this rank has consumed in the step that was filled last, and
  // of the place of each in the step's batch: a sum, in which the order of micro-batches does not
  // matter.
  uint64_t step_hash() const;
  // The samples of a micro-batch of the step that was filled last.
  struct Filled {
    int64_t position = 0;
    int64_t labels = 0;  // tokens with a label
  };
  const std::vector<Filled>& filled(size_t index) const { return filled_samples_.at(index); }
  size_t microbatches() const { return microbatches_.size(); }
  // Returns the sum over the samples of the first step of hashes of their content: tokens, labels,
  // positions and document borders. REQUIRES: that step was filled.
  uint64_t first_content_hash() const { return first_content_hash_; }
  // Returns the total time for which fill() waited for a batch.
  double waited_seconds() const { return waited_seconds_; }

 private:
  std::vector<int> microbatches_;                    // of the whole step, by index of this rank
  std::vector<uint64_t> hashes_;                     // of the filled samples, by index
  std::vector<uint64_t> place_hashes_;               // of them with their places, likewise
  std::vector<std::vector<Filled>> filled_samples_;  // by index
  data::BatchSplit split_;
  int64_t shift_;
  int64_t filled_ = 0;  // micro-batches
  uint64_t first_content_hash_ = 0;
  double waited_seconds_ = 0;
  data::Prefetcher prefetcher_;
};

// Throws Error unless all ranks together consumed each sample of step `step` (counted from 0)
// exactly once, and ranks along tp the same ones. `report` is that of the step, `shift` that of
// TrainBatches.
void check_samples(const engine::StepReport& report, const spec::Plan&, int64_t step,
                   int64_t shift = 0);

// Consecutive micro-batches of the first `samples` samples in the sampler's order; after the last
// sample come sequences without labels.
class SequentialBatches final : public engine::MicrobatchSource {
 public:
  SequentialBatches(const data::SampleProvider&, int64_t sequences, int64_t samples);
  void fill(int index, const engine::HostMicrobatch&) override;
  // Sets the next micro-batch, counted from 0.
  void seek(int64_t microbatch) { next_ = microbatch * sequences_; }
  // Labels of the micro-batch that was filled last, [sequences, seq_len].
  std::span<const int32_t> labels() const { return batch_.labels; }

 private:
  const data::SampleProvider& sampler_;
  int64_t sequences_, samples_;
  int64_t next_ = 0;
  data::Batch batch_;
};

}  // namespace trireme::train
