// SPDX-License-Identifier: Apache-2.0
// The loss of one sequence under weights that are read from elsewhere as they are needed: the
// embedding's rows of its tokens, then half a block at a time, then some rows of the head at a
// time. Layers and kernels are those of the engine, in fp32 on the CPU.
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

// Fills `values` with the box [lo, hi) of the parameter (spec::params_of), row-major. Ignores
// Piece::local.
using ReadWeights =
    std::function<void(const std::string& name, const spec::Piece& box, std::span<float> values)>;

struct StreamedLossOptions {
  // Elements per read: as many rows as fit, at least one. It also bounds the part of the head's
  // weight and of the logits in memory.
  int64_t window_elements = int64_t{8} << 20;
};

// Returns the loss of every token but the last; the label of a token is its successor. Reads every
// parameter once, from front to back (of the embedding only the rows of the tokens; a tied table a
// second time for the head). Memory: the larger half of a block (attention or feed-forward), the
// slots of a block, and windows. REQUIRES: a CPU device; from 2 to model.max_seq + 1 tokens of the
// vocabulary; no layer reads own tensors (spec::inference_state()), which Hugging Face files lack.
std::vector<float> streamed_losses(device::Device&, const spec::ModelSpec&,
                                   std::span<const int32_t> tokens, const ReadWeights&,
                                   const StreamedLossOptions& = {});

}  // namespace trireme::engine
