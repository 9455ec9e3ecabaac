// SPDX-License-Identifier: Apache-2.0
// AttentionCore: o = attention(q, k, v) of a rank's rows, and its gradients. A rank that has all
// rows of its sequences calls the op; ranks along cp exchange rows, heads or keys around it
// (attention_context.h). Slots, ops, collectives and scratch: spec/facts/context_facts.cpp.
#pragma once

#include <functional>
#include <memory>

#include "nn/boundaries.h"
#include "nn/layer.h"

namespace trireme::nn {

// Queries, keys and values: [rows, heads, head size] each.
struct Heads {
  Tensor q, k, v;
};
// Returns the views of q, k and v in a tensor of q | k | v.
Heads split_heads(Tensor fused, const spec::BlockSpec&);

float attention_scale(const spec::BlockSpec&);

class AttentionCore {
 public:
  virtual ~AttentionCore() = default;
  // Do ranks exchange q, k and v by heads (Ulysses)? Then exchange() writes them to the slot
  // `heads`, which forward() and backward() read instead of their argument.
  virtual bool exchanges_heads() const = 0;
  virtual void exchange(Pass&, const Heads& own) const = 0;
  // Fills the slots o, lse and o_heads.
  virtual void forward(Pass&, const Heads&) const = 0;
  // Computes the gradients `d` of the rank's q, k and v. make_dout(dout) writes the gradient of the
  // slot o.
  virtual void backward(Pass&, const Heads&, const std::function<void(Tensor dout)>& make_dout,
                        const Heads& d) const = 0;
};

// `local`: the block of this rank along tp.
std::unique_ptr<const AttentionCore> make_attention_core(const spec::BlockSpec& local,
                                                         const spec::LocalShape&,
                                                         const spec::Backend&,
                                                         const ContextBoundary&);

}  // namespace trireme::nn
