// SPDX-License-Identifier: Apache-2.0
// Inference: a model with trained weights, for evaluation and generation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "engine/engine.h"
#include "spec/model.h"
#include "train/setup/setup.h"
#include "train/weights/sequence_loss.h"
#include "train/weights/weights_source.h"

namespace trireme::train {

struct InferenceOptions {
  int64_t sequences = 1;
  int64_t seq_len = 0;  // 0: the model's maximum
  // fp32 or bf16; or fp8-tensor or fp8-block, as a training run computes its forward: that needs
  // the memory of training, and has no logits().
  std::string dtype = "fp32";
  std::vector<int> bf16_blocks;  // with fp8: stay in bf16
  config::System system;
  bool document_mask = false;  // attention does not cross document boundaries
  std::string batch_option;    // option that sets `sequences`, "--batch "; empty: none
};

class Inference {
 public:
  // Throws IoError or ConfigError that names file and reason.
  Inference(WeightsSource& weights, const InferenceOptions&);
  // Reads weights from a Hugging Face folder.
  Inference(const std::filesystem::path& weights, const InferenceOptions&);

  const spec::ModelDims& dims() const { return dims_; }
  int64_t seq_len() const { return seq_len_; }
  int64_t sequences() const { return sequences_; }
  const engine::Engine& engine() const { return *engine_; }
  const Platform& platform() const { return platform_; }

  // Returns the loss of each sequence of a micro-batch: tokens and labels are [sequences, seq_len];
  // a negative label has no loss.
  std::vector<SequenceLoss> losses(std::span<const int32_t> tokens,
                                   std::span<const int32_t> labels);
  // The same for a micro-batch that `source` fills; `labels` is called after it and returns the
  // labels of that micro-batch.
  std::vector<SequenceLoss> losses(engine::MicrobatchSource& source,
                                   const std::function<std::span<const int32_t>()>& labels);

  // Returns the loss of every token of a micro-batch; zero without a label.
  std::vector<float> token_losses(engine::MicrobatchSource& source);

  // Returns the logits after the last token, from the last seq_len tokens: the complete window is
  // computed. train/generate continues texts with a cache instead. REQUIRES: fp32 or bf16.
  std::vector<float> logits(std::span<const int32_t> tokens);

 private:
  spec::ModelDims dims_;
  int64_t sequences_, seq_len_;
  Platform platform_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace trireme::train
