// SPDX-License-Identifier: Apache-2.0
// Operands of a block's products in 8 bits: who quantises what, and into which memory. Formulas,
// slots and the order of operations: spec/facts/float8_facts.cpp.
#pragma once

#include "nn/linear.h"

namespace trireme::nn {

// A matrix in 8 bits.
struct Codes {
  Tensor values, scale;
};

// Returns the codes and scales of a [rows, cols] matrix in memory of spec::codes_spec().
Codes codes_in(Tensor memory, base::DType format, spec::ScaleShape, int64_t rows, int64_t cols);

// The codes of activations and gradients in one pass of a block. REQUIRES: pass.recipe.fp8.
class Quantizer {
 public:
  explicit Quantizer(Pass& pass) : pass_(pass), fp8_(*pass.recipe.fp8) {}

  // Sets the largest magnitudes of a micro-batch to zero, when its forward begins.
  void begin() const;
  // Returns where a producer raises the largest magnitude of a tensor; empty if it is not needed.
  Tensor amax(spec::Quantized) const;
  // Computes it for a tensor whose producer does not.
  void find_amax(spec::Quantized, ConstTensor x, ConstTensor end = {}) const;

  // Returns memory in scratch for the codes by rows of a [rows, cols] tensor.
  Codes take(spec::Quantized, int64_t rows, int64_t cols) const;
  // Returns the transposed codes in a slot (or other memory) of a [rows, cols] tensor; empty if
  // `slot` is.
  Codes transposed(spec::Quantized, Tensor slot, int64_t rows, int64_t cols) const;
  // Either may be empty. `end`: see kernels::QuantizeArgs.
  void quantize(spec::Quantized, ConstTensor x, const Codes& rows, const Codes& columns,
                ConstTensor end = {}) const;
  // Returns the arguments of that op, to queue it together with the producer of x.
  kernels::QuantizeArgs quantize_args(spec::Quantized, ConstTensor x, const Codes& rows,
                                      const Codes& columns) const;
  // Returns transposed codes of a weight, in scratch.
  Codes transposed_weight(spec::BlockParam) const;
  // The same of the matrices of experts [G, out, in]: [G, in, out], with flat scales.
  Codes transposed_experts(spec::BlockParam) const;

 private:
  base::DType format(spec::Quantized q) const { return pass_.recipe.format(q); }

  Pass& pass_;
  const spec::Float8Recipe& fp8_;
};

// Does this pass write the transposed codes of a forward operand? F does if they are kept, and
// recompute if it recomputes them.
template <typename SlotEnum>
Tensor written_codes(Pass& pass, SlotEnum slot) {
  const bool is_written = pass.recomputing
                              ? pass.fills(slot)
                              : pass.stash.fate(slot) == spec::Fate::kept && !pass.evaluating;
  return is_written ? pass.stash[slot] : Tensor{};
}

}  // namespace trireme::nn
