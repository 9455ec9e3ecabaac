// SPDX-License-Identifier: Apache-2.0
#include "nn/block.h"

#include "base/check.h"

namespace trireme::nn {

void Block::forward(Pass& pass, int phase) const {
  TRIREME_CHECK(phase >= 0 && phase < phases(), "phase {}", phase);
  if (phase == attention) {
    attention_.forward(pass);
  } else if (experts_) {
    experts_->forward(pass, phase - feed_forward);
  } else {
    has_tiles_ ? tiled_feed_forward_.forward(pass) : feed_forward_.forward(pass);
  }
}

void Block::backward_input(Pass& pass, int phase) const {
  TRIREME_CHECK(phase >= 0 && phase < phases(), "phase {}", phase);
  if (phase == attention) {
    attention_.backward_input(pass);
  } else if (experts_) {
    experts_->backward_input(pass, phase - feed_forward);
  } else {
    has_tiles_ ? tiled_feed_forward_.backward(pass) : feed_forward_.backward_input(pass);
  }
}

void Block::backward_weight(Pass& pass) const {
  const device::Range range(pass.stream, "weight gradients");
  if (experts_) {
    experts_->backward_weight(pass);
  } else if (!has_tiles_) {
    feed_forward_.backward_weight(pass);
  }
  attention_.backward_weight(pass);
}

}  // namespace trireme::nn
