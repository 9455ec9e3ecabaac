// SPDX-License-Identifier: Apache-2.0
// The second part of a transformer block: norm, feed-forward, residual.
#pragma once

#include "nn/block_part.h"

namespace trireme::nn {

class FeedForward final : public BlockPart {
 public:
  using BlockPart::BlockPart;

  void forward(Pass&) const;
  void backward_input(Pass&) const;
  void backward_weight(Pass&) const;

 private:
  // The same with products in 8 bits (float8_feed_forward.cpp).
  void forward_codes(Pass&) const;
  void backward_codes(Pass&) const;
  void weights_of_codes(Pass&) const;
  void make_dup(Pass&, Tensor dup, const Codes& codes) const;
};

}  // namespace trireme::nn
