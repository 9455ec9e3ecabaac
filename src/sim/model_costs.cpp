// SPDX-License-Identifier: Apache-2.0
#include "sim/model_costs.h"

#include <algorithm>

#include "base/check.h"
#include "spec/parallel/stage_cut.h"

namespace trireme::sim {
namespace {

double flops_of(const spec::OpCost& op, const ModelCostOptions& options) {
  if (!base::is_float8(op.dtype)) return options.flops_per_second;
  return options.float8_flops_per_second > 0 ? options.float8_flops_per_second
                                             : default_float8_gain * options.flops_per_second;
}

double seconds_of(const std::vector<spec::OpCost>& ops, const ModelCostOptions& options) {
  double sum = 0;
  for (const spec::OpCost& op : ops) {
    const double bytes =
        options.bytes_per_second > 0 ? static_cast<double>(op.bytes) / options.bytes_per_second : 0;
    sum += std::max(op.flops / flops_of(op, options), bytes);
  }
  return sum;
}

double seconds_of_layer(const StageSeconds& layer) { return layer.f + layer.bw; }

StageBytes kept_of(const spec::Facts& layer, spec::Recompute recompute) {
  StageBytes kept;
  for (size_t i = 0; i < layer.stash.size(); ++i) {
    const spec::Slot& slot = layer.stash[i];
    if (slot.spec.shape.ndim() == 0) continue;
    const auto bytes = static_cast<double>(base::bytes_of(slot.spec));
    if (slot.life == spec::Life::b_to_w) {
      if (slot.replaces < 0) kept.b_to_w += bytes;
    } else if (spec::is_kept(slot, static_cast<int>(i), recompute)) {
      (slot.life == spec::Life::f_to_b ? kept.f_to_b : kept.f_to_w) += bytes;
    } else {
      kept.r_to_w += bytes;
    }
  }
  return kept;
}

}  // namespace

Costs layer_costs(const spec::ModelSpec& model, const ModelCostOptions& options) {
  TRIREME_CHECK(options.flops_per_second > 0, "{} FLOP/s", options.flops_per_second);
  const double output_bytes = static_cast<double>(base::bytes_of(
      {{options.shape.tokens, spec::typical_block(model).width}, options.recipe.storage}));
  Costs costs;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const spec::Recompute recompute = options.recompute.empty()
                                          ? spec::Recompute::none
                                          : options.recompute.at(static_cast<size_t>(layer));
    const spec::Facts facts =
        spec::facts(model, layer, options.shape, options.recipe, recompute, options.backend);
    StageSeconds seconds;
    seconds.f = seconds_of(facts.f, options);
    seconds.r = seconds_of(facts.r, options);
    seconds.b = seconds_of(facts.b, options) + seconds.r;
    seconds.w = seconds_of(facts.w, options);
    seconds.bw = seconds.b + seconds.w;
    seconds.fb = seconds.f + seconds.bw;
    costs.seconds.push_back(seconds);
    costs.kept.push_back(kept_of(facts, recompute));
    costs.output_bytes.push_back(output_bytes);
  }
  return costs;
}

Costs stage_costs(const Costs& layers, const std::vector<int>& cut) {
  TRIREME_CHECK(!cut.empty() && cut[0] == 0, "a cut of {} stages", cut.size());
  Costs stages;
  for (size_t stage = 0; stage < cut.size(); ++stage) {
    const auto first = static_cast<size_t>(cut[stage]);
    const size_t last =
        stage + 1 < cut.size() ? static_cast<size_t>(cut[stage + 1]) : layers.seconds.size();
    TRIREME_CHECK(first < last && last <= layers.seconds.size(), "stage {} has layers {} to {}",
                  stage, first, last);
    StageSeconds seconds{0, 0, 0, 0, 0, 0, 0};
    StageBytes kept;
    for (size_t layer = first; layer < last; ++layer) {
      const StageSeconds& one = layers.seconds[layer];
      seconds.f += one.f;
      seconds.b += one.b;
      seconds.w += one.w;
      seconds.bw += one.bw;
      seconds.r += one.r;
      seconds.fb += one.fb;
      seconds.reduce += one.reduce;
      kept.f_to_b += layers.kept[layer].f_to_b;
      kept.f_to_w += layers.kept[layer].f_to_w;
      kept.b_to_w += layers.kept[layer].b_to_w;
      kept.r_to_w += layers.kept[layer].r_to_w;
    }
    stages.seconds.push_back(seconds);
    stages.kept.push_back(kept);
    stages.output_bytes.push_back(layers.output_bytes[last - 1]);
  }
  return stages;
}

std::vector<int> balanced_cut(const Costs& layers, int stages) {
  std::vector<double> seconds;
  for (const StageSeconds& layer : layers.seconds) seconds.push_back(seconds_of_layer(layer));
  return spec::balanced_cut(seconds, stages);
}

}  // namespace trireme::sim
