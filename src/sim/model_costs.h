// SPDX-License-Identifier: Apache-2.0
// Costs of a model's stages from facts(): the time of an operation is its FLOPs over a given rate
// or its bytes over a given bandwidth, whichever is longer; memory is the bytes of kept slots by
// lifetime.
#pragma once

#include <vector>

#include "sim/sim.h"
#include "spec/facts/facts.h"
#include "spec/model.h"

namespace trireme::sim {

// The mean rate of 8-bit products with one scale a tensor relative to bf16, on an H200.
constexpr double default_float8_gain = 1.8;

struct ModelCostOptions {
  spec::LocalShape shape;  // one micro-batch on one rank
  spec::Recipe recipe;
  std::vector<spec::Recompute> recompute;  // of each layer, as in a plan; empty: none
  spec::Backend backend;
  double flops_per_second = 1;
  double bytes_per_second = 0;  // of the device's memory; 0: unlimited
  // The rate of products of 8-bit operands; 0: default_float8_gain times flops_per_second.
  double float8_flops_per_second = 0;
};

// Returns the costs of each layer of the model, including embedding and head. The time of recompute
// is part of b and bw.
Costs layer_costs(const spec::ModelSpec&, const ModelCostOptions&);

// Layers [cut[s], cut[s + 1]) are stage s. REQUIRES: the cut begins with 0 and is ascending.
Costs stage_costs(const Costs& layers, const std::vector<int>& cut);

// Calls spec::balanced_cut() with seconds as costs.
std::vector<int> balanced_cut(const Costs& layers, int stages);

}  // namespace trireme::sim
