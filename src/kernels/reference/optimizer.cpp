// SPDX-License-Identifier: Apache-2.0
// The end of a step: the sum of squares, the decision (kernels/step_control.h), and AdamW.
#include <algorithm>
#include <cmath>

#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"
#include "kernels/step_control.h"
#include "kernels/step_state.h"
#include "kernels/wide_sum.h"

namespace trireme::kernels::reference {
namespace {

StepSums& sums_at(const Tensor& tensor) { return *reinterpret_cast<StepSums*>(tensor.data); }

void add_squares(const SumSquaresArgs& args) {
  const Matrix x = read(args.x);
  for (int64_t first = 0; first < x.rows; first += WideSum::block_elements) {
    const int64_t last = std::min(first + WideSum::block_elements, x.rows);
    double block_sum = 0;
    for (int64_t i = first; i < last; ++i) block_sum += x(i) * x(i);
    add_block_sum(sums_at(args.sums).squares, block_sum);
  }
}

void update(const AdamwArgs& args) {
  const auto& state = *reinterpret_cast<const StepState*>(args.state.data);
  if (state.skip != 0) return;
  const Matrix grad = read(args.grad);
  const bool is_split = args.master && args.master.dtype == base::DType::u16;
  Matrix p =
      is_split ? read_split(args.param, args.master) : read(args.master ? args.master : args.param);
  Matrix m = read(args.m), v = read(args.v);
  const auto b1 = static_cast<double>(args.beta1), b2 = static_cast<double>(args.beta2);
  const auto t = static_cast<double>(state.applied);
  const double m_correction = 1 - std::pow(b1, t), v_correction = 1 - std::pow(b2, t);
  for (int64_t i = 0; i < p.rows; ++i) {
    const double g = grad(i) * static_cast<double>(state.grad_scale);
    m(i) = b1 * m(i) + (1 - b1) * g;
    v(i) = b2 * v(i) + (1 - b2) * g * g;
    const double step =
        m(i) / m_correction / (std::sqrt(v(i) / v_correction) + static_cast<double>(args.eps));
    p(i) -= static_cast<double>(state.learning_rate) *
            (step + static_cast<double>(args.weight_decay) * p(i));
  }
  write(args.m, m);
  write(args.v, v);
  if (is_split) return write_split(args.param, args.master, p);
  write(args.master, p);
  if (args.master) {
    for (double& value : p.values) value = rounded_to(args.master.dtype, value);
  }
  write(args.param, p);
}

}  // namespace

void sum_squares(Stream& stream, const SumSquaresArgs& args) {
  run_on(stream, [args] { add_squares(args); });
}

void merge_sums(Stream& stream, const MergeSumsArgs& args) {
  run_on(stream, [args] {
    sums_at(args.sums) = merged(reinterpret_cast<const StepSums*>(args.parts.data),
                                args.parts.rows(), args.copies, args.slices);
  });
}

void step_control(Stream& stream, const StepControlArgs& args) {
  run_on(stream, [args] {
    close_step(sums_at(args.sums), *reinterpret_cast<StepState*>(args.state.data), args);
  });
}

void adamw(Stream& stream, const AdamwArgs& args) {
  run_on(stream, [args] { update(args); });
}

}  // namespace trireme::kernels::reference
