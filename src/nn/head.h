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
  // Adds loss and tokens to the sink; when training also makes dh and the gradient of the
  // projection.
  void forward(Pass&, int phase) const override;
  void backward_input(Pass&, int phase) const override;
  void backward_weight(Pass&) const override;  // nothing: done in forward

 private:
  // Rows [begin, begin + rows) of the stream here, and the same rows of all ranks.
  Tensor normed(Pass&, int64_t begin, int64_t rows) const;
  // Logits and loss of the rows of the micro-batch from `begin` on that `h` has; their gradient is
  // added to the weight's and makes dh.
  void chunk(Pass&, int64_t begin, Tensor h, Tensor dh) const;

  spec::HeadSpec spec_;
  spec::Range columns_;  // of the vocabulary, that are here
  int64_t padded_;       // columns that are computed
  int64_t tokens_, chunk_rows_;
  spec::Backend backend_;
  Boundary tp_;
};

}  // namespace trireme::nn
