// SPDX-License-Identifier: Apache-2.0
// Makes a checkpoint from weights in Hugging Face form: the generation of step 0, which a run
// resumes as if it had taken no step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "ckpt/disk/disk.h"
#include "ckpt/hf/hf_weights.h"
#include "spec/model.h"

namespace trireme::train {

// Moments are zero, and the state records no run: seed, batch and data are those of the run that
// resumes from it. `progress` receives the bytes written so far. Memory: a few windows of 32 MiB.
// Throws IoError, also if `root` contains checkpoints, which a run would resume from instead.
// Returns the folder of the generation. REQUIRES: `root` exists.
std::filesystem::path import_weights(ckpt::Disk&, const std::filesystem::path& weights,
                                     const spec::ModelDims&, const std::filesystem::path& root,
                                     const std::function<void(int64_t bytes)>& progress = {});

// Weights of a model from any source.
struct PartsSource {
  std::filesystem::path weights;  // where they come from; a tokenizer beside it is copied
  spec::ModelDims dims;
  std::function<void()> check;  // throws if the source does not fit, before anything is written
  // Calls its argument for all parameters in the order of ckpt::hf_params(), each from front to
  // back.
  std::function<void(const ckpt::WritePart&)> read;
};
// The same for such weights.
std::filesystem::path import_parts(ckpt::Disk&, const PartsSource&,
                                   const std::filesystem::path& root,
                                   const std::function<void(int64_t bytes)>& progress = {});

}  // namespace trireme::train
