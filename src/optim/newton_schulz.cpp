// SPDX-License-Identifier: Apache-2.0
#include "optim/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/ops.h"

namespace trireme::optim {
namespace {

namespace ops = kernels::ops;
using device::Tensor;

constexpr float coefficient_a = 3.4445F, coefficient_b = -4.7750F, coefficient_c = 2.0315F;

}  // namespace

Tensor newton_schulz(device::Stream& stream, const NewtonSchulzMemory& memory, int64_t rows,
                     int64_t cols, int steps) {
  const int64_t side = std::min(rows, cols);
  const bool is_wide = rows <= cols;
  const auto view = [](const Tensor& flat, int64_t r, int64_t c) {
    return flat.slice_rows(0, r * c).reshape({r, c});
  };
  ops::fill(stream, {.d = memory.squares});
  ops::sum_squares(stream, {.x = memory.x.slice_rows(0, rows * cols), .squares = memory.squares});
  ops::normalize(stream, {.d = memory.x.slice_rows(0, rows * cols), .squares = memory.squares});
  Tensor x = view(memory.x, rows, cols), next = view(memory.next, rows, cols);
  const Tensor a = view(memory.a, side, side), b = view(memory.b, side, side);
  for (int i = 0; i < steps; ++i) {
    ops::gemm(stream, {.a = x, .b = x, .d = a, .trans_a = !is_wide, .trans_b = is_wide});
    ops::copy(stream, {.x = a, .d = b});
    ops::gemm(stream, {.a = a, .b = a, .d = b, .alpha = coefficient_c, .beta = coefficient_b});
    ops::copy(stream, {.x = x, .d = next});
    ops::gemm(stream,
              {.a = is_wide ? b : x, .b = is_wide ? x : b, .d = next, .beta = coefficient_a});
    std::swap(x, next);
  }
  return x;
}

float muon_factor(int64_t rows, int64_t cols) {
  constexpr double adamw_rms = 0.2;
  return static_cast<float>(adamw_rms * std::sqrt(static_cast<double>(std::max(rows, cols))));
}

}  // namespace trireme::optim
