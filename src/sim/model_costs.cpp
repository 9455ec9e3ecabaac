// SPDX-License-Identifier: Apache-2.0
#include "sim/model_costs.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace trireme::sim {
namespace {

double seconds_of(const std::vector<spec::OpCost>& ops, const ModelCostOptions& options) {
  double sum = 0;
  for (const spec::OpCost& op : ops) {
    const double bytes =
        options.bytes_per_second > 0 ? static_cast<double>(op.bytes) / options.bytes_per_second : 0;
    sum += std::max(op.flops / options.flops_per_second, bytes);
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

// How many runs are needed if none may take longer than `most`.
int runs_within(const Costs& layers, double most) {
  int runs = 1;
  double sum = 0;
  for (const StageSeconds& layer : layers.seconds) {
    const double seconds = seconds_of_layer(layer);
    if (seconds > most) return std::numeric_limits<int>::max();
    if (sum + seconds > most) {
      ++runs;
      sum = 0;
    }
    sum += seconds;
  }
  return runs;
}

}  // namespace

Costs layer_costs(const spec::ModelSpec& model, const ModelCostOptions& options) {
  TRIREME_CHECK(options.flops_per_second > 0, "{} FLOP/s", options.flops_per_second);
  const auto* block = std::get_if<spec::BlockSpec>(&model.layers.at(1));
  TRIREME_CHECK(block != nullptr, "{} has no block behind its embedding", model.name);
  const double output_bytes = static_cast<double>(
      base::bytes_of({{options.shape.tokens, block->width}, options.recipe.storage}));
  Costs costs;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer) {
    const bool is_block =
        std::holds_alternative<spec::BlockSpec>(model.layers[static_cast<size_t>(layer)]);
    const spec::Recompute recompute = is_block ? options.recompute : spec::Recompute::none;
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
  const int count = static_cast<int>(layers.seconds.size());
  TRIREME_CHECK(stages >= 1 && stages <= count, "{} stages of {} layers", stages, count);
  // The longest stage takes as long as some run of layers; the shortest such bound that suffices.
  double best = std::numeric_limits<double>::max();
  for (int first = 0; first < count; ++first) {
    double sum = 0;
    for (int last = first; last < count; ++last) {
      sum += seconds_of_layer(layers.seconds[static_cast<size_t>(last)]);
      if (sum < best && runs_within(layers, sum * (1 + 1e-12)) <= stages) best = sum;
    }
  }
  std::vector<int> cut = {0};
  double sum = 0;
  for (int layer = 0; layer < count; ++layer) {
    const double seconds = seconds_of_layer(layers.seconds[static_cast<size_t>(layer)]);
    const int stages_left = stages - static_cast<int>(cut.size());
    const bool must_cut = count - layer == stages_left;  // one layer for each that is left
    if (layer > cut.back() && (sum + seconds > best * (1 + 1e-12) || must_cut) && stages_left > 0) {
      cut.push_back(layer);
      sum = 0;
    }
    sum += seconds;
  }
  return cut;
}

}  // namespace trireme::sim
