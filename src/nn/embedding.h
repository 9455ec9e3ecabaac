// SPDX-License-Identifier: Apache-2.0
// Token (and learned position) embedding: the first layer. Its facts are in
// spec/embedding_facts.cpp.
#pragma once

#include "nn/layer.h"

namespace trireme::nn {

class Embedding final : public Layer {
 public:
  explicit Embedding(const spec::Backend& backend) : backend_(backend) {}

  int phases() const override { return 1; }
  void forward(Pass&, int phase) const override;
  void backward_input(Pass&, int phase) const override;  // nothing: tokens have no gradient
  void backward_weight(Pass&) const override;

 private:
  spec::Backend backend_;
};

}  // namespace trireme::nn
