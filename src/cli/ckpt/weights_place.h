// SPDX-License-Identifier: Apache-2.0
// Resolves the path of trained weights: a run's folder, a checkpoint, or Hugging Face weights.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/text/json_fwd.h"
#include "cli/shell/args.h"
#include "train/weights/weights_source.h"

namespace trireme::cli {

// The weights at a path.
class FoundWeights : public train::WeightsSource {
 public:
  // "weights of runs/kjv/weights/final", "checkpoint of step 100 in runs/kjv/checkpoint"; after
  // read() it names the weights that were read.
  virtual std::string description() const = 0;
  virtual base::Json json() const = 0;  // path, and step if it is known
  // Returns run.json of the run that they belong to; empty if no run is known.
  virtual std::filesystem::path run_file() const = 0;
  // Returns the folder of the tokenizer that lies with the weights: a Hugging Face folder itself,
  // the folder `tokenizer` of a checkpoint, or that of the run. Empty if there is none.
  virtual std::filesystem::path tokenizer_path() const = 0;
};

// Finds the weights at a path. In a run's folder these are the final weights or, if there are none
// or checkpoints are newer, the newest intact checkpoint; in a checkpoint folder, the newest intact
// checkpoint. A damaged checkpoint is skipped with a warning, unless the path names it. Throws
// IoError or ConfigError.
std::unique_ptr<FoundWeights> find_weights(const std::filesystem::path&);

// The positional argument "from": the path for find_weights().
Option weights_argument(bool is_required);

// --tokenizer, and its value or else the tokenizer that lies with the weights. Throws ConfigError
// if both exist and give other ids.
Option tokenizer_option();
std::filesystem::path tokenizer_of(const Args&, const FoundWeights&);

}  // namespace trireme::cli
