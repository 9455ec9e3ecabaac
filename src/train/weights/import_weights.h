// SPDX-License-Identifier: Apache-2.0
// Makes a checkpoint from weights in Hugging Face form: the generation of step 0, which a run
// resumes as if it had taken no step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "ckpt/disk/disk.h"
#include "spec/model.h"

namespace trireme::train {

// Moments are zero, and the state records no run: seed, batch and data are those of the run that
// resumes from it. `progress` receives the bytes written so far. Memory: a few windows of 32 MiB.
// Throws IoError, also if `root` contains checkpoints, which a run would resume from instead.
// Returns the folder of the generation. REQUIRES: `root` exists.
std::filesystem::path import_weights(ckpt::Disk&, const std::filesystem::path& weights,
                                     const spec::ModelDims&, const std::filesystem::path& root,
                                     const std::function<void(int64_t bytes)>& progress = {});

}  // namespace trireme::train
