// SPDX-License-Identifier: Apache-2.0
#include "spec/state/float8_state.h"

namespace trireme::spec {
namespace {

StateTensor magnitudes_of_block(const char* name, int64_t elements, StateReduction reduction) {
  return {.name = name,
          .saved_as = name,
          .covers = StateCover::own,
          .shard = {.name = name, .shape = {elements}, .cuts = {}},
          .reduction = reduction};
}

}  // namespace

std::vector<StateTensor> float8_state(const Recipe& recipe) {
  if (!recipe.fp8 || !recipe.fp8->is_delayed) return {};
  return {magnitudes_of_block(amax_state, delayed_count, StateReduction::max),
          magnitudes_of_block(amax_history_state, delayed_count * recipe.fp8->history,
                              StateReduction::none)};
}

base::TensorSpec delayed_amax_spec(const Recipe& recipe, int64_t float8_blocks) {
  if (float8_blocks == 0 || !recipe.fp8 || !recipe.fp8->is_delayed) return {};
  return {{float8_blocks * delayed_count}, base::DType::f32};
}

}  // namespace trireme::spec
