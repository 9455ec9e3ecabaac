// SPDX-License-Identifier: Apache-2.0
// SwiGLU, or its gradient, and the quantisation of its result as a pair: the codes, scales and
// counts of the two ops in turn, whether a table fuses them or not.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::swiglu_quantize_test {
namespace {

struct Problem {
  int64_t rows, F;
  ScaleShape shape = ScaleShape::row_128;
  DType format = DType::f8e4m3;
  bool by_rows = true, by_columns = true;
  bool is_delayed = true;  // with one scale
  bool measures = false;
  bool recomputes_y = false;  // of the gradient
  int64_t gap = 8;
};

// Queues the pair, or the two ops.
void run(const Problem& p, bool is_gradient, bool is_pair, Operands& o, Stream& s) {
  const Make make = {.dtype = DType::bf16, .gap = p.gap};
  const int64_t cols = is_gradient ? 2 * p.F : p.F;
  const Tensor gate_up = o.input({p.rows, 2 * p.F}, make), dy = o.input({p.rows, p.F}, make);
  const Tensor result = o.scratch({p.rows, cols}, DType::bf16);
  QuantizeArgs quantize;
  quantize.x = result;
  quantize.shape = p.shape;
  const auto codes = [&](int64_t r, int64_t c) {
    return o.result({r, c}, {.dtype = p.format, .gap = 2 * p.gap, .exact = true});
  };
  const auto scales = [&](int64_t r, int64_t c) {
    return o.result(spec::scale_spec(p.shape, r, c).shape, {.exact = true});
  };
  if (p.by_rows) {
    quantize.rows = codes(p.rows, cols);
    quantize.rows_scale = scales(p.rows, cols);
  }
  if (p.by_columns) {
    quantize.columns = codes(cols, p.rows);
    quantize.columns_scale = scales(cols, p.rows);
  }
  if (p.shape == ScaleShape::tensor) {
    quantize.amax = o.input({1}, {}, [](int64_t, int64_t) { return 1.5; });
    quantize.is_delayed = p.is_delayed;
  }
  quantize.counts = o.counts();
  quantize.measures = p.measures;
  const SwigluForwardArgs forward = {.gate_up = gate_up, .y = result};
  SwigluBackwardArgs backward = {.gate_up = gate_up, .dy = dy, .dgate_up = result};
  if (p.recomputes_y) backward.y = o.result({p.rows, p.F}, {.dtype = DType::bf16, .gap = p.gap});
  if (is_gradient && is_pair) {
    ops::swiglu_backward_quantize(s, backward, quantize);
  } else if (is_gradient) {
    ops::swiglu_backward(s, backward);
    ops::quantize(s, quantize);
  } else if (is_pair) {
    ops::swiglu_forward_quantize(s, forward, quantize);
  } else {
    ops::swiglu_forward(s, forward);
    ops::quantize(s, quantize);
  }
}

TEST(SwigluQuantizeTest, a_pair_has_the_bits_of_two_ops) {
  const Problem problems[] = {
      {.rows = 256, .F = 128},
      {.rows = 384, .F = 384, .measures = true, .recomputes_y = true},
      {.rows = 144, .F = 256, .format = DType::f8e5m2, .by_columns = false},
      {.rows = 130, .F = 128, .by_rows = false, .measures = true},
      {.rows = 100, .F = 136},
      {.rows = 100, .F = 70, .gap = 3},
      {.rows = 272, .F = 256, .shape = ScaleShape::tensor, .measures = true},
      {.rows = 96, .F = 136, .shape = ScaleShape::tensor, .format = DType::f8e5m2},
      {.rows = 128, .F = 128, .shape = ScaleShape::tensor, .is_delayed = false}};
  for_each_machine([&](Machine& machine) {
    for (const Problem& p : problems) {
      for (const bool is_gradient : {false, true}) {
        SCOPED_TRACE(fmt::format("{} x {} shape {} gradient {}", p.rows, p.F,
                                 static_cast<int>(p.shape), is_gradient));
        Operands pair(3, machine), two(3, machine);
        run(p, is_gradient, true, pair, *machine.stream);
        run(p, is_gradient, false, two, *machine.stream);
        machine.stream->synchronize();
        pair.expect_intact();
        pair.expect_same_bits(two);
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::swiglu_quantize_test
