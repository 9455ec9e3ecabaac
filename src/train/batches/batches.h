// SPDX-License-Identifier: Apache-2.0
// Data sets as the engine's source of micro-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"
#include "data/files/token_data.h"
#include "data/samples/prefetch.h"
#include "data/samples/sampler.h"
#include "engine/engine.h"
#include "engine/step/input.h"
#include "spec/plan.h"

namespace trireme::train {

// The training and validation data of a configuration, opened and checked against the model.
class DataSets {
 public:
  // Throws IoError or ConfigError that names file and reason.
  DataSets(const config::Config&, int64_t vocab);

  const data::Sampler& train() const { return *train_; }
  const data::Sampler* validation() const { return validation_.get(); }  // null: none wanted
  const data::TokenData& train_data() const { return *train_data_; }
  // Returns a message about files of the data that differ from those that were opened; empty: none.
  // One system call per file: cheap enough for every step that logs.
  std::string changed() const;

  // Returns everything that decides which tokens a run sees in which order: content of both data
  // sets, split, order and masks. Reads the data (content_id()). A resumed run compares it with
  // that of its checkpoint, and every rank with that of the first rank.
  base::Json identity() const;

 private:
  std::unique_ptr<data::TokenData> train_data_, validation_data_;
  std::unique_ptr<data::Sampler> train_, validation_;
};

// The training micro-batches of one rank, prefetched by a thread, in the order of steps from
// `first_step` (counted from 0) on. Which samples make micro-batch i of a step
// (spec::global_microbatch) does not depend on the number of ranks. Step s takes the samples from
// s * batch + `shift` on; the shift is 0 unless the batch size changed during the run.
class TrainBatches final : public engine::MicrobatchSource {
 public:
  TrainBatches(const data::Sampler&, const spec::Plan&, const spec::Coord&, int64_t first_step,
               int64_t shift = 0);
  void fill(int index, const engine::HostMicrobatch&) override;
  uint64_t sample_hash(int index) const override { return hashes_.at(static_cast<size_t>(index)); }
  // Returns the total time for which fill() waited for a batch.
  double waited_seconds() const { return waited_seconds_; }

 private:
  std::vector<int> microbatches_;  // of the whole step, by index of this rank
  std::vector<uint64_t> hashes_;   // of the filled samples, by index
  data::BatchSplit split_;
  int64_t shift_;
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
  SequentialBatches(const data::Sampler&, int64_t sequences, int64_t samples);
  void fill(int index, const engine::HostMicrobatch&) override;
  // Sets the next micro-batch, counted from 0.
  void seek(int64_t microbatch) { next_ = microbatch * sequences_; }
  // Labels of the micro-batch that was filled last, [sequences, seq_len].
  std::span<const int32_t> labels() const { return batch_.labels; }

 private:
  const data::Sampler& sampler_;
  int64_t sequences_, samples_;
  int64_t next_ = 0;
  data::Batch batch_;
};

}  // namespace trireme::train
