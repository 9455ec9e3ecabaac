// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/decode_product.h"

#include "kernels/ops.h"

namespace trireme::engine {

namespace ops = kernels::ops;

void multiply(device::Stream& stream, const DecodeProduct& a, bool is_prompt) {
  if (is_prompt && a.x.rows() > max_product_rows) {
    ops::gemm(stream, {.a = a.x,
                       .b = a.weight,
                       .d = a.y,
                       .trans_b = true,
                       .epilogue = kernels::AddTerms{.bias = a.bias, .residual = a.residual}});
  } else {
    ops::row_product(
        stream, {.x = a.x, .weight = a.weight, .bias = a.bias, .residual = a.residual, .y = a.y});
  }
}

}  // namespace trireme::engine
