// SPDX-License-Identifier: Apache-2.0
// Final norm, logits, cross-entropy: the last layer. Logits exist for `head_chunk_rows` tokens at a
// time. Its facts are in spec/facts/head_facts.cpp.
#pragma once

#include "nn/boundary.h"
#include "nn/layer.h"

namespace trireme::nn {

class Head final : public Layer {
 public:
  Head(const spec::HeadSpec&, const spec::LocalShape&, const spec::Backend&, const Boundary& tp);

  int phases() const override { return 1; }
  // Adds loss and tokens to the sink. In training it also computes dh and the gradient of the
  // projection.
  void forward(Pass&, int phase) const override;
  void backward_input(Pass&, int phase) const override;
  void backward_weight(Pass&) const override;  // does nothing: forward() has computed it

 private:
  // Returns the normed rows [begin, begin + rows) of this rank's stream, gathered from all ranks
  // under sequence parallelism.
  Tensor normed(Pass&, int64_t begin, int64_t rows) const;
  // Computes logits and loss of the rows `h`, which start at row `begin` of the micro-batch, adds
  // to the gradient of the projection and writes dh.
  void chunk(Pass&, int64_t begin, Tensor h, Tensor dh) const;

  spec::HeadSpec spec_;
  spec::Range columns_;  // of the vocabulary, on this rank
  int64_t padded_;       // columns that the GEMM computes
  int64_t tokens_, chunk_rows_;
  spec::Backend backend_;
  Boundary tp_;
};

}  // namespace trireme::nn
