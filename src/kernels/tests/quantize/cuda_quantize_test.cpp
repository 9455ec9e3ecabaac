// SPDX-License-Identifier: Apache-2.0
// The quantise kernels of a GPU on matrices that they move 8 and 16 bytes at a time: several tiles,
// parts of tiles, strides that keep rows aligned, and starts that do not.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::cuda_quantize_test {
namespace {

struct Matrix {
  int64_t rows, cols;
  int64_t gap = 0;    // between rows, of all tensors
  int64_t shift = 0;  // columns before the first, of all tensors
};

// A part of a tensor that begins `shift` elements later.
Tensor shifted(const Tensor& t, int64_t shift) {
  return shift == 0 ? t : t.slice_cols(shift, t.cols() - shift);
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const Matrix matrices[] = {{128, 128},       {384, 264},       {144, 520, 8},   {528, 648, 16},
                             {256, 256, 0, 8}, {272, 392, 0, 4}, {130, 136, 0, 0}};
  for (const Matrix& m : matrices) {
    for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
      for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::row_128}) {
        for (const int sides : {1, 2, 3}) {
          for (const bool measures : {false, true}) {
            const auto run = [=](Operands& o, Stream& s) {
              const auto matrix = [&](bool is_result, int64_t rows, int64_t cols, DType dtype) {
                const base::Shape whole = {rows, cols + m.shift};
                const Make make = {.dtype = dtype, .gap = m.gap, .exact = is_result};
                return shifted(is_result ? o.updated(whole, make) : o.input(whole, make), m.shift);
              };
              const Tensor x = matrix(false, m.rows, m.cols, DType::bf16);
              QuantizeArgs args;
              args.x = x;
              args.shape = shape;
              if ((sides & 1) != 0) {
                args.rows = matrix(true, m.rows, m.cols, format);
                args.rows_scale =
                    o.result(spec::scale_spec(shape, m.rows, m.cols).shape, {.exact = true});
              }
              if ((sides & 2) != 0) {
                args.columns = matrix(true, m.cols, m.rows, format);
                args.columns_scale =
                    o.result(spec::scale_spec(shape, m.cols, m.rows).shape, {.exact = true});
              }
              if (shape == ScaleShape::tensor) {
                const Tensor amax = o.input({1}, {}, [](int64_t, int64_t) { return 0; });
                o.prepare([&](Stream& r) { ops::amax(r, {.x = x, .amax = amax}); });
                args.amax = amax;
              }
              args.counts = o.counts();
              args.measures = measures;
              ops::quantize(s, args);
            };
            list.push_back(
                {fmt::format("{} x {} gap {} shift {} {} shape {} sides {}{}", m.rows, m.cols,
                             m.gap, m.shift, base::name_of(format), static_cast<int>(shape), sides,
                             measures ? " measured" : ""),
                 run});
          }
        }
      }
    }
    for (const DType dtype : {DType::f8e4m3, DType::f32}) {
      for (const int64_t count : {1, 3}) {
        list.push_back({fmt::format("transpose {} x {} x {} gap {} shift {} {}", count, m.rows,
                                    m.cols, m.gap, m.shift, base::name_of(dtype)),
                        [=](Operands& o, Stream& s) {
                          const Make make = {.dtype = dtype, .gap = m.gap, .exact = true};
                          const Tensor x = o.input({count * m.rows, m.cols + m.shift}, make);
                          const Tensor d = o.updated({count * m.cols, m.rows + m.shift}, make);
                          ops::transpose(
                              s,
                              {.x = shifted(x, m.shift), .d = shifted(d, m.shift), .count = count});
                        }});
      }
    }
  }
  return list;
}

TEST(CudaQuantizeTest, aligned_matrices_have_the_bits_of_the_reference) {
  expect_cuda_agrees(cases());
}

}  // namespace
}  // namespace trireme::kernels::cuda_quantize_test
