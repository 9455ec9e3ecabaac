// SPDX-License-Identifier: Apache-2.0
#include "engine/state/router_update.h"

#include "kernels/ops.h"
#include "spec/experts/router_state.h"

namespace trireme::engine {
namespace {

namespace ops = kernels::ops;

std::vector<float> on_host(device::Stream& stream, device::ConstTensor values) {
  std::vector<float> floats(static_cast<size_t>(values.elements()));
  stream.download(std::as_writable_bytes(std::span(floats)), values);
  stream.synchronize();
  return floats;
}

}  // namespace

RouterUpdate::RouterUpdate(const spec::ModelSpec& model, const spec::Plan& plan, int pp_rank,
                           const TrainState& state, device::Stream& compute)
    : compute_(compute), is_strict_(plan.layout.overflow == spec::Overflow::strict) {
  for (const int layer : spec::layers_of_rank(model, plan, pp_rank)) {
    const auto* block = std::get_if<spec::BlockSpec>(&model.layers[static_cast<size_t>(layer)]);
    if (block == nullptr || !block->moe) continue;
    const auto tensor = [&](const char* name) {
      const int index = spec::router_state_index(*block->moe, name);
      return index < 0 ? device::Tensor{} : state.own(layer)[static_cast<size_t>(index)];
    };
    routers_.push_back({layer, *block->moe, tensor(spec::router_stats_state),
                        tensor(spec::router_fill_state), tensor(spec::router_bias_state)});
  }
}

void RouterUpdate::begin_step() {
  for (const Router& router : routers_) {
    ops::fill(compute_, {.d = router.stats});
    ops::fill(compute_, {.d = router.fill});
  }
}

void RouterUpdate::count_overflow(device::Tensor sums) {
  if (!is_strict_) return;
  for (const Router& router : routers_) {
    ops::router_overflow(
        compute_, {.stats = router.stats, .experts = router.moe.router.experts, .sums = sums});
  }
}

void RouterUpdate::update_biases(device::ConstTensor step_state) {
  for (const Router& router : routers_) {
    const float rate = router.moe.balance.bias_rate;
    if (!router.bias || rate == 0) continue;
    ops::router_bias(
        compute_, {.stats = router.stats, .state = step_state, .bias = router.bias, .rate = rate});
  }
}

std::vector<RouterUpdate::LayerStats> RouterUpdate::read() const {
  std::vector<LayerStats> all;
  for (const Router& router : routers_) {
    all.push_back({router.layer,
                   {router.moe.router.experts},
                   on_host(compute_, router.stats),
                   on_host(compute_, router.fill).front(),
                   router.bias ? on_host(compute_, router.bias) : std::vector<float>{}});
  }
  return all;
}

}  // namespace trireme::engine
