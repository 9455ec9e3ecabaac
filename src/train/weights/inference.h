// SPDX-License-Identifier: Apache-2.0
// A model with weights that were trained, for evaluation and generation.
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
#include "train/weights/sample.h"
#include "train/weights/sequence_loss.h"
#include "train/setup/setup.h"
#include "train/weights/weights_source.h"

namespace trireme::train {

struct InferenceOptions {
  int64_t sequences = 1;
  int64_t seq_len = 0;  // 0: the model's longest
  std::string dtype = "fp32";
  config::System system;
  bool document_mask = false;  // attention does not cross the borders of documents
  std::string batch_option;    // how the user sets `sequences`, "--batch "; empty: not at all
};

class Inference {
 public:
  // Throws IoError or ConfigError that names file and reason.
  Inference(WeightsSource& weights, const InferenceOptions&);
  // From a Hugging Face folder.
  Inference(const std::filesystem::path& weights, const InferenceOptions&);

  const spec::ModelDims& dims() const { return dims_; }
  int64_t seq_len() const { return seq_len_; }
  int64_t sequences() const { return sequences_; }
  const engine::Engine& engine() const { return *engine_; }
  const Platform& platform() const { return platform_; }

  // Loss of each sequence of a micro-batch: tokens and labels are [sequences, seq_len]; a negative
  // label has no loss.
  std::vector<SequenceLoss> losses(std::span<const int32_t> tokens,
                                   std::span<const int32_t> labels);
  // The same of a micro-batch that `source` fills; then `labels` are those of the micro-batch.
  std::vector<SequenceLoss> losses(engine::MicrobatchSource& source,
                                   const std::function<std::span<const int32_t>()>& labels);

  // Continues `prompt` by `count` tokens, telling each as it is drawn. Of a text longer than
  // seq_len the model sees the last seq_len tokens. The whole window is computed for every token.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, int64_t count,
                                const SampleOptions&, const std::function<void(int32_t)>& on_token);

  std::vector<float> logits(std::span<const int32_t> tokens);  // after the last token

 private:
  spec::ModelDims dims_;
  int64_t sequences_, seq_len_;
  Platform platform_;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace trireme::train
