// SPDX-License-Identifier: Apache-2.0
// A checkpoint out of weights in Hugging Face form: the generation of step 0, from which a run goes
// on as one that has made no step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "ckpt/disk/disk.h"
#include "spec/model.h"

namespace trireme::train {

// Moments are zero, and nothing of the run is in the state: seed, batch and data are those of the
// run that goes on from it. `progress` is told what was written so far. Memory: a few windows of 32
// MiB. Throws IoError; also where `root` holds checkpoints, which would be taken in its place.
// REQUIRES: `root` exists.
std::filesystem::path import_weights(ckpt::Disk&, const std::filesystem::path& weights,
                                     const spec::ModelDims&, const std::filesystem::path& root,
                                     const std::function<void(int64_t bytes)>& progress = {});

}  // namespace trireme::train
