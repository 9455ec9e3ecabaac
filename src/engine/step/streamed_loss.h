// SPDX-License-Identifier: Apache-2.0
// The loss of one sequence under weights that lie elsewhere and are read as they are needed: the
// embedding's rows of its tokens, then half a block at a time, then some rows of the head. Layers
// and kernels are those of the engine, in fp32 on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "spec/model.h"
#include "spec/parallel/shard.h"

namespace trireme::engine {

// Fills `values` with the box [lo, hi) of the parameter (spec::params_of), row-major. Piece::local
// says nothing.
using ReadWeights =
    std::function<void(const std::string& name, const spec::Piece& box, std::span<float> values)>;

struct StreamedLossOptions {
  // Elements that are asked for at one time: rows as they fit, at least one. Also of the head's
  // weight and of the logits that are in memory.
  int64_t window_elements = int64_t{8} << 20;
};

// The loss of every token but the last one, whose label is the token after it. Every parameter is
// read once, from front to back (of the embedding only the rows of the tokens, a tied table with
// the head once more). Memory: the larger half of a block (attention or feed-forward), what a block
// keeps of its tokens, and windows. REQUIRES: a CPU device; from 2 to model.max_seq + 1 tokens of
// the vocabulary.
std::vector<float> streamed_losses(device::Device&, const spec::ModelSpec&,
                                   std::span<const int32_t> tokens, const ReadWeights&,
                                   const StreamedLossOptions& = {});

}  // namespace trireme::engine
