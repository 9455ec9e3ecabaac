// SPDX-License-Identifier: Apache-2.0
#include "spec/experts/router_state.h"

namespace trireme::spec {
namespace {

StateTensor own_tensor(const char* name, int64_t elements, StateReduction reduction) {
  return {.name = name,
          .saved_as = name,
          .dtype = base::DType::f32,
          .covers = StateCover::own,
          .shard = {.name = name, .shape = {elements}, .cuts = {}},
          .reduction = reduction};
}

}  // namespace

std::vector<StateTensor> router_state(const MoeSpec& moe) {
  const RouterStats stats{moe.router.experts};
  std::vector<StateTensor> all = {
      own_tensor(router_stats_state, stats.size(), StateReduction::sum),
      own_tensor(router_fill_state, 1, StateReduction::max)};
  if (moe.router.has_bias) {
    all.push_back(own_tensor(router_bias_state, moe.router.experts, StateReduction::none));
    all.back().is_input = true;
  }
  return all;
}

int router_state_index(const MoeSpec& moe, std::string_view name) {
  const std::vector<StateTensor> all = router_state(moe);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace trireme::spec
