// SPDX-License-Identifier: Apache-2.0
// Data sets as the engine's source of micro-batches.
#pragma once

#include <cstdint>
#include <memory>

#include "config/config.h"
#include "data/prefetch.h"
#include "data/sampler.h"
#include "data/token_data.h"
#include "engine/input.h"

namespace trireme::train {

// The training and validation data of a configuration, opened and checked against the model.
class DataSets {
 public:
  // Throws IoError or ConfigError that names file and reason.
  DataSets(const config::Config&, int64_t vocab);

  const data::Sampler& train() const { return *train_; }
  const data::Sampler* validation() const { return validation_.get(); }  // null: none wanted
  const data::TokenData& train_data() const { return *train_data_; }

 private:
  std::unique_ptr<data::TokenData> train_data_, validation_data_;
  std::unique_ptr<data::Sampler> train_, validation_;
};

// Micro-batches of training, made ahead on a thread, in the order of steps from `first_step` on.
class TrainBatches final : public engine::MicrobatchSource {
 public:
  TrainBatches(const data::Sampler&, const config::Config&, int64_t first_step);
  void fill(int index, const engine::HostMicrobatch&) override;

 private:
  data::BatchSplit split_;
  data::Prefetcher prefetcher_;
};

// Micro-batch after micro-batch of a sampler in its own order, from the start; after the last sample
// come sequences without labels.
class SequentialBatches final : public engine::MicrobatchSource {
 public:
  SequentialBatches(const data::Sampler&, int64_t sequences);
  void fill(int index, const engine::HostMicrobatch&) override;

 private:
  const data::Sampler& sampler_;
  int64_t sequences_;
  int64_t next_ = 0;
  data::Batch batch_;
};

}  // namespace trireme::train
