// SPDX-License-Identifier: Apache-2.0
// The second part of a transformer block as a mixture of experts: norm, router, experts, residual.
// Formulas, slots and operations are described in spec/facts/experts/expert_facts.cpp, in the same
// order.
#pragma once

#include "nn/block_part.h"
#include "nn/experts/expert_exchange.h"

namespace trireme::nn {

class ExpertFeedForward final : public BlockPart {
 public:
  // REQUIRES: spec.moe.
  ExpertFeedForward(const spec::BlockSpec& spec, const spec::LocalShape& shape,
                    const spec::Backend& backend, const Boundaries& boundaries);

  // The phases of F, in this order, and of B, in the reverse one. On one rank along ep and etp
  // they are one, because rows stay in scratch.
  enum Phase : int { dispatch, experts, combine, phase_count };
  int phases() const { return exchange_.is_local() ? 1 : phase_count; }
  void forward(Pass&, int phase) const;
  void backward_input(Pass&, int phase) const;
  void backward_weight(Pass&) const;

 private:
  // With products in 8 bits (float8_experts.cpp).
  Tensor codes_forward(Pass&) const;
  Tensor codes_backward(Pass&) const;
  void make_dup(Pass&, Tensor rows, Tensor dup) const;
  void codes_weights(Pass&) const;
  kernels::GroupedScales scales_of(const Pass&, const Codes& rows, ConstTensor weight_scale,
                                   bool is_forward) const;
  // The number of grouped rows, on the device.
  ConstTensor end(Pass& pass) const {
    return pass.stash[spec::BlockSlot::starts].slice_rows(rows_.groups, 1);
  }
  void dispatch_forward(Pass&) const;
  // Return the results of the rank's experts, which are in scratch.
  Tensor experts_forward(Pass&) const;
  void combine_forward(Pass&, Tensor rows) const;
  void combine_backward(Pass&) const;
  Tensor experts_backward(Pass&) const;
  void dispatch_backward(Pass&, Tensor drows) const;
  const spec::MoeSpec& moe() const { return *spec_.moe; }
  // Returns an own tensor of the layer, or an empty one.
  Tensor state(const Pass&, const char* name) const;
  // The rows of the router's tokens in their sequences.
  int64_t first_row() const { return shape_.sequence_parallel ? tp_.rank() * rows_.tokens : 0; }
  int64_t sequence_rows() const;
  // Chooses experts, or computes the weights of earlier choices, and gives every pair a row.
  void route(Pass&) const;
  void sum_load(Pass&, Tensor stats) const;
  // The shared experts: their result, and from dy the gradients of their activation and input.
  void shared_up(Pass&) const;
  Tensor shared_result(Pass&) const;
  void shared_backward(Pass&) const;
  Tensor shared_input_gradient(Pass&) const;
  void router_backward(Pass&, ConstTensor row_grads) const;
  // Is the sum of dh2 by token.
  void norm_backward(Pass&, Tensor dh2) const;

  spec::ExpertRows rows_;
  ExpertBoundary ranks_;
  ExpertExchange exchange_;
};

}  // namespace trireme::nn
