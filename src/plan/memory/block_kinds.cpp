// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/block_kinds.h"

#include <utility>

namespace trireme::plan {
namespace {

// Finds a layer of each kind.
void find_layers(BlockKinds& kinds) {
  for (size_t i = 0; i < kinds.is_other.size(); ++i) {
    BlockKind& kind = kinds.is_other[i] ? kinds.other : kinds.main;
    if (kind.layer == 0) kind.layer = static_cast<int>(i) + 1;
  }
  if (kinds.main.layer == 0) std::swap(kinds.main, kinds.other);
  if (kinds.other.layer == 0) kinds.is_other.clear();
}

}  // namespace

BlockKinds block_kinds(const Job& job, const Stack& stack, const Layout& l) {
  const spec::ModelSpec& model = job.model;
  const auto blocks = static_cast<size_t>(model.blocks());
  const bool has_float8 = stack.is_engine() && spec::is_fp8(l.precision);
  BlockKinds kinds;
  kinds.main.has_float8 = has_float8;
  if (dense_block(model) != nullptr) {
    kinds.other.has_float8 = has_float8;
    for (size_t i = 1; i <= blocks; ++i) {
      kinds.is_other.push_back(!std::get<spec::BlockSpec>(model.layers[i]).moe);
    }
  } else if (has_float8) {
    const spec::Recipe recipe = spec::recipe_of(l);
    for (size_t i = 1; i <= blocks; ++i) {
      const auto layer = static_cast<int>(i);
      kinds.is_other.push_back(!spec::layer_recipe(recipe, model, layer).fp8);
    }
  } else {
    kinds.is_other.assign(blocks, false);
  }
  find_layers(kinds);
  return kinds;
}

}  // namespace trireme::plan
