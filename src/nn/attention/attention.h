// SPDX-License-Identifier: Apache-2.0
// The first part of a transformer block: norm, attention, residual. An AttentionCore computes o
// from q, k and v: on a rank that has all rows, or together with the ranks along cp.
#pragma once

#include <memory>

#include "nn/attention/attention_core.h"
#include "nn/block_part.h"

namespace trireme::nn {

class Attention final : public BlockPart {
 public:
  Attention(const spec::BlockSpec&, const spec::LocalShape&, const spec::Backend&,
            const Boundaries&);

  void forward(Pass&) const;
  void backward_input(Pass&) const;
  void backward_weight(Pass&) const;

 private:
  void project(Pass&, Tensor qkv) const;
  // The same with products in 8 bits (float8_attention.cpp).
  void project_codes(Pass&, Tensor qkv) const;
  void project_out_codes(Pass&) const;
  void backward_codes(Pass&) const;
  void weights_of_codes(Pass&) const;
  // Views of q, k and v after rotation: from `qk` as far as the block has it (rotation.h).
  Heads heads(Tensor qkv, Tensor qk) const;
  // The same from slots; empty if ranks exchange heads.
  Heads kept_heads(Pass&) const;

  std::unique_ptr<const AttentionCore> core_;
};

}  // namespace trireme::nn
