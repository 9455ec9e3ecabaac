// SPDX-License-Identifier: Apache-2.0
// Token (and learned position) embedding: the first layer. Its facts are in
// spec/facts/embedding_facts.cpp.
#pragma once

#include "nn/boundary.h"
#include "nn/layer.h"

namespace trireme::nn {

class Embedding final : public Layer {
 public:
  Embedding(const spec::EmbeddingSpec&, const spec::LocalShape&, const spec::Backend&,
            const Boundary& tp);

  int phases() const override { return 1; }
  void forward(Pass&, int phase) const override;
  void backward_input(Pass&, int phase) const override;  // does nothing: tokens have no gradient
  void backward_weight(Pass&) const override;

 private:
  spec::Range rows_;  // of the vocabulary, on this rank
  int64_t tokens_;
  spec::Backend backend_;
  Boundary tp_;
};

}  // namespace trireme::nn
