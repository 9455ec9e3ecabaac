// SPDX-License-Identifier: Apache-2.0
// The table of rotary position embedding: cos and sin of every position and frequency.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/model.h"

namespace trireme::spec {

// Angular frequencies theta^(-2 i / head_dim), i < head_dim / 2, with Llama-3's scaling if the spec
// has one.
std::vector<double> rope_frequencies(const RopeSpec&, int64_t head_dim);

// [positions, head_dim]: head_dim / 2 cosines, then head_dim / 2 sines. Computed in fp64, rounded
// once.
std::vector<float> rope_table(const RopeSpec&, int64_t head_dim, int64_t positions);

}  // namespace trireme::spec
