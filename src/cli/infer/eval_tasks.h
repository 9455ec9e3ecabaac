// SPDX-License-Identifier: Apache-2.0
// `trireme eval --tasks`: the accuracy of a model on multiple-choice questions.
#pragma once

#include "cli/ckpt/weights_place.h"
#include "cli/shell/args.h"
#include "train/weights/inference.h"

namespace trireme::cli {

// Returns the exit code. Throws ConfigError or IoError before weights are read if a line of the
// file is bad.
int run_tasks(const Args&, FoundWeights&, train::InferenceOptions);

}  // namespace trireme::cli
