// SPDX-License-Identifier: Apache-2.0
// What a path means to verbs that compute with trained weights: a run's folder, a checkpoint, or
// Hugging Face weights.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/text/json_fwd.h"
#include "cli/shell/args.h"
#include "train/weights/weights_source.h"

namespace trireme::cli {

// The weights that a path leads to.
class FoundWeights : public train::WeightsSource {
 public:
  // "weights of runs/kjv/weights/final", "checkpoint of step 100 in runs/kjv/checkpoint"; after
  // read() it names what was read.
  virtual std::string description() const = 0;
  virtual base::Json json() const = 0;  // the same: path, and step where it is known
  // run.json of the run that they belong to; empty: of none that is known.
  virtual std::filesystem::path run_file() const = 0;
};

// Finds the weights that a path means: a run's folder means its final weights or, where there are
// none or checkpoints are newer, its newest intact checkpoint; a checkpoint folder means its newest
// intact checkpoint. A damaged one is skipped with a warning, unless the path names it. Throws
// IoError or ConfigError.
std::unique_ptr<FoundWeights> find_weights(const std::filesystem::path&);

// "from", a positional word: the path of find_weights().
Option weights_argument(bool is_required);

}  // namespace trireme::cli
