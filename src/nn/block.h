// SPDX-License-Identifier: Apache-2.0
// A transformer block: an attention part and a feed-forward part, each a phase.
#pragma once

#include <optional>

#include "nn/attention/attention.h"
#include "nn/experts/expert_feed_forward.h"
#include "nn/feed_forward.h"
#include "nn/layer.h"
#include "nn/tiled_feed_forward.h"

namespace trireme::nn {

class Block final : public Layer {
 public:
  // The attention is the first phase. The feed-forward has one, experts have more.
  enum Phase : int { attention, feed_forward, phase_count };

  Block(const spec::BlockSpec& spec, const spec::LocalShape& shape, const spec::Backend& backend,
        const Boundaries& boundaries)
      : attention_(spec, shape, backend, boundaries),
        has_tiles_(shape.has_ffn_tiles()),
        feed_forward_(spec, shape, backend, boundaries.tp),
        tiled_feed_forward_(spec, shape, backend, boundaries.tp) {
    if (spec.moe) experts_.emplace(spec, shape, backend, boundaries);
  }

  int phases() const override {
    return experts_ ? feed_forward + experts_->phases() : static_cast<int>(phase_count);
  }
  void forward(Pass&, int phase) const override;
  void backward_input(Pass&, int phase) const override;
  void backward_weight(Pass&) const override;

 private:
  Attention attention_;
  // One of the three follows the attention.
  std::optional<ExpertFeedForward> experts_;
  bool has_tiles_;
  FeedForward feed_forward_;
  TiledFeedForward tiled_feed_forward_;
};

}  // namespace trireme::nn
