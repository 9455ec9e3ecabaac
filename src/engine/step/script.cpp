// SPDX-License-Identifier: Apache-2.0
#include "engine/step/script.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::engine {
namespace {

using Kind = Step::Kind;

class Writer {
 public:
  Writer(Walk walk, const ScriptOptions& options)
      : walk_(walk),
        options_(options),
        layers_(static_cast<int>(options.phases_by_layer.size())),
        // Weight gradients read no parameters.
        reads_shards_(options.residency.params && walk != Walk::backward_weight),
        gathers_(reads_shards_ && options.gathers),
        gathers_after_(options.prefetch_after && walk != Walk::forward) {}

  int layer_at(int position) const {
    return walk_ == Walk::forward ? position : layers_ - 1 - position;
  }
  void add(Kind kind, int layer, int phase = 0) {
    steps_.push_back({kind, static_cast<int16_t>(layer), static_cast<int16_t>(phase)});
  }
  void phases(Kind kind, int layer) {
    const int count = options_.phases_by_layer[static_cast<size_t>(layer)];
    for (int phase = 0; phase < count; ++phase) {
      add(kind, layer, kind == Kind::backward_input ? count - 1 - phase : phase);
    }
  }
  // Gathers the layer `prefetch` places ahead in walking order; before the first layer also those
  // between.
  void gather_before(int position) {
    if (gathers_after_) {
      if (position == 0) gather(0, std::max(options_.prefetch, 1));
      return;
    }
    gather(position == 0 ? 0 : position + options_.prefetch, position + options_.prefetch + 1);
  }
  void gather_after(int position) {
    const int next = position + std::max(options_.prefetch, 1);
    if (gathers_after_) gather(next, next + 1);
  }
  void release(int position) {
    if (!reads_shards_ || !options_.releases) return;
    const bool is_last = position + 1 == layers_;
    const bool keeps = walk_ == Walk::forward && options_.stays >= 0;
    if (!keeps || layer_at(position) != options_.stays) add(Kind::release, layer_at(position));
    if (keeps && is_last) add(Kind::release, options_.stays);
  }
  // In F for the head, otherwise in the first action of the backward.
  void zero(int layer) {
    const bool is_here = walk_ == Walk::forward
                             ? layer == options_.head
                             : walk_ != Walk::backward_weight && layer != options_.head;
    if (options_.begins && is_here) add(Kind::zero, layer);
  }
  void reduce(int layer) {
    if (options_.reduces) add(Kind::reduce, layer);
  }
  std::vector<Step> take() { return std::move(steps_); }

 private:
  void gather(int begin, int end) {
    if (!gathers_) return;
    for (int at = begin; at < std::min(end, layers_); ++at) add(Kind::gather, layer_at(at));
  }

  const Walk walk_;
  const ScriptOptions& options_;
  const int layers_;
  const bool reads_shards_, gathers_, gathers_after_;
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Step> script(Walk walk, const ScriptOptions& options) {
  TRIREME_CHECK(options.phases_by_layer.size() == options.recompute.size(),
                "{} layers, {} policies", options.phases_by_layer.size(), options.recompute.size());
  TRIREME_CHECK(options.prefetch >= 0, "prefetch {}", options.prefetch);
  const auto layers = static_cast<int>(options.phases_by_layer.size());
  Writer out(walk, options);
  for (int position = 0; position < layers; ++position) {
    const int layer = out.layer_at(position);
    out.gather_before(position);
    out.zero(layer);
    if (walk == Walk::forward) out.phases(Kind::forward, layer);
    if (walk == Walk::backward || walk == Walk::backward_input) {
      if (options.recompute[static_cast<size_t>(layer)] != spec::Recompute::none) {
        out.phases(Kind::recompute, layer);
      }
      out.phases(Kind::backward_input, layer);
    }
    if (walk == Walk::backward || walk == Walk::backward_weight) {
      out.add(Kind::backward_weight, layer);
      out.reduce(layer);
    }
    out.release(position);
    out.gather_after(position);
  }
  return out.take();
}

}  // namespace trireme::engine
