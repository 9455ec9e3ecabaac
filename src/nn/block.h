// SPDX-License-Identifier: Apache-2.0
// A transformer block: norm, attention, residual; norm, feed-forward, residual. Formulas, slots and
// operations are described in spec/facts/block_facts.cpp, in the same order.
#pragma once

#include "nn/boundary.h"
#include "nn/layer.h"

namespace trireme::nn {

class Block final : public Layer {
 public:
  enum Phase : int { attention, mlp, phase_count };

  Block(const spec::BlockSpec& spec, const spec::LocalShape& shape, const spec::Backend& backend,
        const Boundary& tp)
      : spec_(spec::local_block(spec, shape.mesh)), shape_(shape), backend_(backend), tp_(tp) {}

  int phases() const override { return phase_count; }
  void forward(Pass&, int phase) const override;
  void backward_input(Pass&, int phase) const override;
  void backward_weight(Pass&) const override;

 private:
  void forward_attention(Pass&) const;
  void forward_mlp(Pass&) const;
  void backward_attention(Pass&) const;
  void backward_mlp(Pass&) const;
  // Returns the gradient tensor of a bias if this part of the backward computes it, otherwise an
  // empty tensor.
  enum class Part : uint8_t { input, weight };
  Tensor bias_grad(const Pass&, Part, spec::BlockParam bias) const;
  base::TensorSpec norm_partials(int64_t rows, const Tensor& dresidual_sum) const {
    return spec::norm_backward_partials(spec_.norm, rows, spec_.width,
                                        static_cast<bool>(dresidual_sum));
  }
  void rotate(Pass&, Tensor qkv) const;
  void rotate_back(Pass&, Tensor dqkv) const;

  // Views of q, k and v as the attention reads them: after rotation, hence from the qk slot if the
  // block has one.
  struct Heads {
    Tensor q, k, v;
  };
  Heads heads(Pass&) const;
  Heads split(Tensor fused) const;  // [T, (H + 2 G) K] -> q, k, v

  spec::BlockSpec spec_;  // with the heads and feed-forward width of this rank
  spec::LocalShape shape_;
  spec::Backend backend_;
  Boundary tp_;
};

}  // namespace trireme::nn
