// SPDX-License-Identifier: Apache-2.0
// Upcycling: makes a mixture of experts from the weights of a dense model. Every expert begins as a
// copy of the dense feed-forward of its block, and routers are random. If the weights of a token's
// experts add up to 1 (renormalize), the mixture computes the dense model's function at first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "ckpt/disk/disk.h"
#include "spec/model.h"

namespace trireme::train {

struct Upcycling {
  spec::ModelDims dense, moe;
  uint64_t seed = 0;  // of routers, as in a run of this seed, and of noise
  double noise = 0;   // standard deviation of what is added to each weight of an expert
};

// Throws ConfigError that lists every size in which the models do not fit.
void check_upcycling(const Upcycling&);

// Creates a checkpoint of step 0 as import_weights() does. Throws ConfigError of check_upcycling()
// and IoError.
std::filesystem::path upcycle_weights(ckpt::Disk&, const std::filesystem::path& weights,
                                      const Upcycling&, const std::filesystem::path& root,
                                      const std::function<void(int64_t bytes)>& progress = {});

}  // namespace trireme::train
