// SPDX-License-Identifier: Apache-2.0
// The end of a step: the sum of squares, the decision (kernels/step_control.h), AdamW and Muon.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/host_flag.h"
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
    add_block_sum(*reinterpret_cast<WideSum*>(args.squares.data), block_sum);
  }
}

const StepState& state_at(const ConstTensor& tensor) {
  return *reinterpret_cast<const StepState*>(tensor.data);
}

Matrix read_weights(const Tensor& param, const Tensor& master) {
  const bool is_split = master && master.dtype == base::DType::u16;
  return is_split ? read_split(param, master) : read(master ? master : param);
}

void write_weights(const Tensor& param, const Tensor& master, Matrix p) {
  if (master && master.dtype == base::DType::u16) return write_split(param, master, p);
  write(master, p);
  if (master) {
    for (double& value : p.values) value = rounded_to(master.dtype, value);
  }
  write(param, p);
}

// Adds the squares of the differences between two states of the weights, as fp32 values.
void add_changes(const ChangeSquares& changes, const Matrix& before, const Matrix& after) {
  if (!changes.sum) return;
  double sum = 0;
  for (int64_t i = changes.begin; i < changes.end; ++i) {
    const double change = rounded_to(base::DType::f32, after(i)) - before(i);
    sum += change * change;
  }
  add_block_sum(*reinterpret_cast<WideSum*>(changes.sum.data), sum);
}

void update(const AdamwArgs& args) {
  const StepState& state = state_at(args.state);
  if (state.skip != 0) return;
  const Matrix grad = read(args.grad);
  Matrix p = read_weights(args.param, args.master);
  const Matrix before = p;
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
  add_changes(args.changes, before, p);
  write_weights(args.param, args.master, std::move(p));
}

void add_momentum(const MomentumArgs& args) {
  const StepState& state = state_at(args.state);
  const Matrix grad = read(args.grad);
  Matrix m = read(args.m), u = m;
  const auto mu = static_cast<double>(args.momentum);
  for (int64_t i = 0; i < m.rows; ++i) {
    const double g = grad(i) * static_cast<double>(state.grad_scale);
    if (state.skip == 0) m(i) = mu * m(i) + g;
    u(i) = state.skip != 0 ? 0 : args.nesterov ? g + mu * m(i) : m(i);
  }
  write(args.m, m);
  write(args.u, u);
}

void divide_by_norm(const NormalizeArgs& args) {
  const double norm = std::sqrt(to_double(*reinterpret_cast<const WideSum*>(args.squares.data)));
  Matrix d = read(args.d);
  for (double& value : d.values) {
    value = std::isfinite(norm) ? value / std::max(norm, static_cast<double>(args.eps)) : 0;
  }
  write(args.d, d);
}

void move_along(const MuonArgs& args) {
  const StepState& state = state_at(args.state);
  if (state.skip != 0) return;
  const Matrix direction = read(args.direction);
  Matrix p = read_weights(args.param, args.master);
  const Matrix before = p;
  for (int64_t i = 0; i < p.rows; ++i) {
    p(i) -= static_cast<double>(state.learning_rate) *
            (static_cast<double>(args.factor) * direction(i) +
             static_cast<double>(args.weight_decay) * p(i));
  }
  add_changes(args.changes, before, p);
  write_weights(args.param, args.master, std::move(p));
}

}  // namespace

void sum_squares(Stream& stream, const SumSquaresArgs& args) {
  run_on(stream, [args] { add_squares(args); });
}

void step_control(Stream& stream, const StepControlArgs& args) {
  run_on(stream, [args] {
    close_step(sums_at(args.sums), *reinterpret_cast<StepState*>(args.state.data), args,
               is_raised(args.abort_flag, 1));
  });
}

void gate(Stream& stream, const GateArgs& args) {
  run_on(stream, [args] { pass_gate(args); });
}

void adamw(Stream& stream, const AdamwArgs& args) {
  run_on(stream, [args] { update(args); });
}

void momentum(Stream& stream, const MomentumArgs& args) {
  run_on(stream, [args] { add_momentum(args); });
}

void normalize(Stream& stream, const NormalizeArgs& args) {
  run_on(stream, [args] { divide_by_norm(args); });
}

void muon(Stream& stream, const MuonArgs& args) {
  run_on(stream, [args] { move_along(args); });
}

}  // namespace trireme::kernels::reference
