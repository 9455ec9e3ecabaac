// SPDX-License-Identifier: Apache-2.0
// Final norm, logits, cross-entropy: the last layer. Logits exist for `head_chunk_rows` tokens at a
// time. Its facts are in spec/head_facts.cpp.
#pragma once

#include "nn/layer.h"

namespace trireme::nn {

class Head final : public Layer {
 public:
  Head(const spec::HeadSpec& spec, int64_t chunk_rows, const spec::Backend& backend)
      : spec_(spec), chunk_rows_(chunk_rows), backend_(backend) {}

  int phases() const override { return 1; }
  // Adds loss and tokens to the sink; when training also makes dh and the gradient of the
  // projection.
  void forward(Pass&, int phase) const override;
  void backward_input(Pass&, int phase) const override;
  void backward_weight(Pass&) const override;  // nothing: done in forward

 private:
  void chunk(Pass&, int64_t begin, int64_t rows) const;

  spec::HeadSpec spec_;
  int64_t chunk_rows_;
  spec::Backend backend_;
};

}  // namespace trireme::nn
