// SPDX-License-Identifier: Apache-2.0
#include "engine/precision/delayed_scales.h"

#include <algorithm>
#include <variant>

#include "engine/state/host_floats.h"
#include "kernels/ops.h"
#include "spec/memory/predict.h"
#include "spec/state/float8_state.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;
using spec::delayed_count;

}  // namespace

DelayedScales::DelayedScales(const spec::ModelSpec& model, const spec::Plan& plan, int pp_rank,
                             const TrainState& state, const Numerics& numerics,
                             device::Stream& compute, device::Arena& optim)
    : compute_(compute), is_on_(plan.recipe.fp8 && plan.recipe.fp8->is_delayed && !plan.inference) {
  if (!is_on_) return;
  const std::vector<int> layers = spec::float8_layers(model, plan, pp_rank);
  device::Tensor all;
  if (!layers.empty()) all = optim.take(spec::delayed_amax_spec(plan.recipe, std::ssize(layers)));
  int64_t next = 0;
  for (const int layer : spec::layers_of_rank(model, plan, pp_rank)) {
    if (!std::holds_alternative<spec::BlockSpec>(model.layers[static_cast<size_t>(layer)])) {
      continue;
    }
    Block& block = blocks_.emplace_back();
    block.layer = layer;
    block.amax = state.own(layer, spec::amax_state);
    block.history = state.own(layer, spec::amax_history_state)
                        .reshape({delayed_count, plan.recipe.fp8->history});
    if (std::ranges::find(layers, layer) == layers.end()) continue;
    block.largest = all.slice_rows(next, delayed_count);
    block.counts = numerics.counts(layer).slice_rows(0, delayed_count);
    next += delayed_count;
  }
  state_changed();
}

device::Tensor DelayedScales::largest(int layer) const {
  const auto found = std::ranges::find(blocks_, layer, &Block::layer);
  return found == blocks_.end() ? device::Tensor{} : found->largest;
}

void DelayedScales::collect() {
  for (const Block& block : blocks_) {
    if (block.largest) ops::collect_amax(compute_, {.counts = block.counts, .amax = block.amax});
  }
}

void DelayedScales::rotate(device::ConstTensor step_state) {
  for (const Block& block : blocks_) {
    if (!block.largest) continue;
    ops::rotate_amax(compute_, {.amax = block.amax,
                                .history = block.history,
                                .largest = block.largest,
                                .state = step_state});
  }
}

void DelayedScales::state_changed() {
  for (const Block& block : blocks_) {
    ops::fill(compute_, {.d = block.amax});
    if (!block.largest) ops::fill(compute_, {.d = block.history});
  }
  rotate({});  // enters nothing
}

bool DelayedScales::is_empty() const {
  return std::ranges::any_of(blocks_, [this](const Block& block) {
    if (!block.largest) return false;
    const std::vector<float> largest = download_floats(compute_, {block.largest});
    return std::ranges::all_of(largest, [](float a) { return a == 0; });
  });
}

}  // namespace trireme::engine
