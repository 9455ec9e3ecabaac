// SPDX-License-Identifier: Apache-2.0
#include "engine/script.h"

#include "base/check.h"

namespace trireme::engine {
namespace {

using Kind = Step::Kind;

class Writer {
 public:
  explicit Writer(const ScriptOptions& options) : options_(options) {}

  void add(Kind kind, int layer, int phase = 0) {
    steps_.push_back({kind, static_cast<int16_t>(layer), static_cast<int16_t>(phase)});
  }
  // Asks for the layer `prefetch` places ahead in walking order, and before the first layer for
  // those between.
  void gather_ahead(int position, int layers, bool is_reversed) {
    if (!options_.residency.params) return;
    const int first = position == 0 ? 0 : position + options_.prefetch;
    for (int at = first; at <= position + options_.prefetch && at < layers; ++at) {
      add(Kind::gather, is_reversed ? layers - 1 - at : at);
    }
  }
  void release(int layer) {
    if (options_.residency.params) add(Kind::release, layer);
  }
  void reduce(int layer) {
    if (options_.reduces_each) add(Kind::reduce, layer);
  }
  std::vector<Step> take() { return std::move(steps_); }

 private:
  const ScriptOptions& options_;
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Step> script(Walk walk, const ScriptOptions& options) {
  TRIREME_CHECK(options.phases_by_layer.size() == options.recompute.size(),
                "{} layers, {} policies", options.phases_by_layer.size(), options.recompute.size());
  TRIREME_CHECK(options.prefetch >= 0, "prefetch {}", options.prefetch);
  const auto layers = static_cast<int>(options.phases_by_layer.size());
  const bool is_reversed = walk != Walk::forward;
  Writer out(options);
  for (int position = 0; position < layers; ++position) {
    const int layer = is_reversed ? layers - 1 - position : position;
    const int phases = options.phases_by_layer[static_cast<size_t>(layer)];
    // Weight gradients read no parameters.
    if (walk != Walk::backward_weight) out.gather_ahead(position, layers, is_reversed);
    if (walk == Walk::forward) {
      for (int phase = 0; phase < phases; ++phase) out.add(Kind::forward, layer, phase);
    }
    if (walk == Walk::backward || walk == Walk::backward_input) {
      if (options.recompute[static_cast<size_t>(layer)] != spec::Recompute::none) {
        for (int phase = 0; phase < phases; ++phase) out.add(Kind::recompute, layer, phase);
      }
      for (int phase = phases - 1; phase >= 0; --phase) {
        out.add(Kind::backward_input, layer, phase);
      }
    }
    if (walk == Walk::backward || walk == Walk::backward_weight) {
      out.add(Kind::backward_weight, layer);
      out.reduce(layer);
    }
    if (walk != Walk::backward_weight) out.release(layer);
  }
  return out.take();
}

}  // namespace trireme::engine
