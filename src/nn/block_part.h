// SPDX-License-Identifier: Apache-2.0
// BlockPart: what the attention and the feed-forward part of a transformer block have in common.
// Formulas, slots and operations are described in spec/facts/block_facts.cpp, in the same order.
#pragma once

#include "nn/boundaries.h"
#include "nn/float8.h"
#include "nn/layer.h"

namespace trireme::nn {

class BlockPart {
 public:
  BlockPart(const spec::BlockSpec& spec, const spec::LocalShape& shape,
            const spec::Backend& backend, const Boundary& tp)
      : spec_(spec::local_block(spec, shape.mesh)), shape_(shape), backend_(backend), tp_(tp) {}

 protected:
  static Tensor at(std::span<const Tensor> tensors, spec::BlockParam param) {
    return tensors[static_cast<size_t>(param)];
  }
  // Returns the gradient tensor of a bias if this half of the backward computes it, otherwise an
  // empty tensor.
  enum class Half : uint8_t { input, weight };
  Tensor bias_grad(const Pass&, Half, spec::BlockParam bias) const;
  base::TensorSpec norm_partials(int64_t rows, const Tensor& dresidual_sum) const {
    return spec::norm_backward_partials(spec_.norm, rows, spec_.width,
                                        static_cast<bool>(dresidual_sum));
  }
  // The gradients of a weight and its bias, if W computes the latter.
  void weight_product(const Pass&, Tensor dy, Tensor x, spec::BlockParam weight,
                      spec::BlockParam bias) const;
  // The same for a product whose input are the rows of a norm's result. Under sequence parallelism
  // a rank keeps its rows of it and gathers the others again.
  void weight_product_of_norm(Pass&, Tensor dy, Tensor norm, spec::BlockParam weight,
                              spec::BlockParam bias) const;

  // ---- products in 8 bits. REQUIRES: pass.recipe.fp8
  // Returns the codes of all rows of a norm's result, in scratch.
  struct NormCodes {
    spec::Quantized which;
    Tensor x;
    spec::BlockParam weight, bias;
    Tensor stats;
    Tensor columns;  // optional: receives the transposed codes
  };
  Codes norm_codes(Pass&, const NormCodes&) const;
  // The gradients of a weight and its bias from transposed codes.
  void codes_product(const Pass&, const Codes& dy, const Codes& x, spec::BlockParam weight,
                     spec::BlockParam bias) const;
  // dx = dy w in 8 bits, possibly a sum over ranks along tp: quantises dy, whose transposed codes
  // go to `slot`, unless its codes are given.
  struct CodesGradient {
    spec::Quantized which;
    Tensor dy, slot;
    Codes codes = {};
    spec::BlockParam weight;
    Tensor dx;
    kernels::Epilogue epilogue = {};
    bool sums_along_tp = false;
  };
  void codes_backward_input(Pass&, const CodesGradient&) const;
  // Quantises all rows of a norm's result by columns.
  void requantize(Pass&, spec::Quantized, Tensor norm, Tensor slot) const;

  spec::BlockSpec spec_;  // with the heads and feed-forward width of this rank
  spec::LocalShape shape_;
  spec::Backend backend_;
  Boundary tp_;
};

}  // namespace trireme::nn
