// SPDX-License-Identifier: Apache-2.0
// The own tensors of a block with experts (spec/state/state.h): what a step counts, and the
// router's bias.
#pragma once

#include <string_view>
#include <vector>

#include "spec/experts/moe_spec.h"
#include "spec/state/state.h"

namespace trireme::spec {

constexpr const char* router_stats_state = "router.stats";
constexpr const char* router_fill_state = "router.fill";
constexpr const char* router_bias_state = "router.bias";

// Returns the tensors in the order in which a layer gets them. The statistics (RouterStats) and the
// rows of the fullest block (RouterFillArgs) are set to zero when a step begins, and are those of
// all ranks after it.
std::vector<StateTensor> router_state(const MoeSpec&);
// Returns the place of a tensor in router_state(), or -1.
int router_state_index(const MoeSpec&, std::string_view name);

}  // namespace trireme::spec
