// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows, each with the matrix of its expert, as kernels/expert_args.h states
// them. Row r of matrix g is row g N + r of a weight [G, N, D] that is read as one matrix.
#include "base/check.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/amax.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

// The rows below starts[G]: the others are not read.
Matrix read_rows(const ConstTensor& tensor, int64_t end) {
  return tensor ? read(tensor.slice_rows(0, end)) : Matrix();
}
void write_rows(const Tensor& tensor, const Matrix& values) {
  if (tensor) write(tensor.slice_rows(0, values.rows), values);
}

int64_t end_of(const ConstTensor& starts) { return read_index(starts, starts.rows() - 1); }

// Calls body(row, its group).
template <typename Body>
void for_each_row(const ConstTensor& starts, const Body& body) {
  for (int64_t g = 0; g + 1 < starts.rows(); ++g) {
    for (int64_t r = read_index(starts, g); r < read_index(starts, g + 1); ++r) body(r, g);
  }
}

// Element (i, j) of matrix g, where `weights` has a matrix with `cols` columns in each row.
double at(const Matrix& weights, int64_t g, int64_t i, int64_t j, int64_t cols) {
  return weights(g, i * cols + j);
}

// Multiplies codes by their scales; values without scales stay as they are.
void apply_scales(Matrix& values, const ConstTensor& scale, ScaleShape shape) {
  if (!scale) return;
  const Matrix scales = read(scale);
  for (int64_t r = 0; r < values.rows; ++r) {
    for (int64_t c = 0; c < values.cols; ++c) {
      const int64_t block = c / spec::scale_block;
      values(r, c) *= shape == ScaleShape::tensor ? scales(0) : scales(block, r);
    }
  }
}

// The matrices of weights, one a row, each with its own scales.
Matrix read_weights(const ConstTensor& weight, const ConstTensor& scale, ScaleShape shape) {
  Matrix values = read(weight);
  if (!scale) return values;
  const int64_t N = weight.shape[1], D = weight.shape[2];
  const base::Shape one = spec::scale_spec(shape, N, D).shape;
  const Matrix scales = read(scale);
  for (int64_t g = 0; g < values.rows; ++g) {
    for (int64_t i = 0; i < N * D; ++i) {
      const int64_t row = i / D / spec::scale_block, col = i % D / spec::scale_block;
      values(g, i) *=
          shape == ScaleShape::tensor ? scales(g) : scales(g * one.elements() + row * one[1] + col);
    }
  }
  return values;
}

// Raises amax by the rows as they are stored.
void raise_by_rows(const Tensor& amax, const Tensor& stored, int64_t end) {
  if (amax) raise_by(amax, stored.slice_rows(0, end));
}

// y[r] = x[r] weight[g]^T.
Matrix multiply_transposed(const ConstTensor& rows, const ConstTensor& weight,
                           const ConstTensor& starts, const GroupedScales& scales) {
  const int64_t N = weight.shape[1], D = weight.shape[2], end = end_of(starts);
  Matrix x = read_rows(rows, end);
  apply_scales(x, scales.a, scales.shape_a);
  const Matrix w = read_weights(weight, scales.b, scales.shape_b);
  Matrix y(end, N);
  for_each_row(starts, [&](int64_t r, int64_t g) {
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < D; ++k) y(r, n) += x(r, k) * at(w, g, n, k, D);
    }
  });
  return y;
}

// dx[r] = dy[r] weight[g]. In 8 bits, the weight is transposed.
Matrix multiply(const ConstTensor& rows, const ConstTensor& weight, const ConstTensor& starts,
                const GroupedScales& scales) {
  if (scales.a) return multiply_transposed(rows, weight, starts, scales);
  const int64_t N = weight.shape[1], D = weight.shape[2], end = end_of(starts);
  const Matrix dy = read_rows(rows, end), w = read(weight);
  Matrix dx(end, D);
  for_each_row(starts, [&](int64_t r, int64_t g) {
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < D; ++k) dx(r, k) += dy(r, n) * at(w, g, n, k, D);
    }
  });
  return dx;
}

// row_weight silu(gate) up.
Matrix activation(const Matrix& gate_up, const Matrix& row_weight) {
  const int64_t F = gate_up.cols / 2;
  Matrix act(gate_up.rows, F);
  for (int64_t r = 0; r < act.rows; ++r) {
    for (int64_t f = 0; f < F; ++f) {
      const double gate = gate_up(r, f);
      act(r, f) = row_weight(r) * (gate * sigmoid(gate) * gate_up(r, F + f));
    }
  }
  return act;
}

// silu'(x) = s (1 + x (1 - s)), s = sigmoid(x).
void swiglu_backward_of(const GroupedSwigluBackwardArgs& a) {
  const int64_t F = a.gate_up.cols() / 2, end = end_of(a.starts);
  const Matrix v = multiply(a.dy, a.weight, a.starts, a.scales);
  const Matrix gate_up = read_rows(a.gate_up, end), row_weight = read_rows(a.row_weight, end);
  Matrix dgate_up(end, 2 * F), dweight(end, 1);
  for (int64_t r = 0; r < end; ++r) {
    for (int64_t f = 0; f < F; ++f) {
      const double gate = gate_up(r, f), up = gate_up(r, F + f), s = sigmoid(gate);
      dgate_up(r, f) = row_weight(r) * v(r, f) * up * s * (1 + gate * (1 - s));
      dgate_up(r, F + f) = row_weight(r) * v(r, f) * gate * s;
      dweight(r) += v(r, f) * gate * s * up;
    }
  }
  write_rows(a.act, activation(gate_up, row_weight));
  write_rows(a.dgate_up, dgate_up);
  raise_by_rows(a.amax, a.dgate_up, end);
  write_rows(a.dweight, dweight);
}

void weight_gradient(const GroupedBackwardWeightArgs& a) {
  const int64_t N = a.dweight.shape[1], D = a.dweight.shape[2], end = end_of(a.starts);
  const bool is_8_bit = static_cast<bool>(a.scales.a);  // then operands are [N, R] and [D, R]
  Matrix dy = is_8_bit ? read(a.dy) : read_rows(a.dy, end);
  Matrix x = is_8_bit ? read(a.x) : read_rows(a.x, end);
  apply_scales(dy, a.scales.a, a.scales.shape_a);
  apply_scales(x, a.scales.b, a.scales.shape_b);
  Matrix dweight = a.adds ? read(a.dweight) : Matrix(a.dweight.rows(), N * D);
  for_each_row(a.starts, [&](int64_t r, int64_t g) {
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < D; ++k) {
        dweight(g, n * D + k) += is_8_bit ? dy(n, r) * x(k, r) : dy(r, n) * x(r, k);
      }
    }
  });
  write(a.dweight, dweight);
}

}  // namespace

void grouped_forward(Stream& stream, const GroupedForwardArgs& args) {
  run_on(stream, [args] {
    write_rows(args.y, multiply_transposed(args.x, args.weight, args.starts, args.scales));
  });
}

void grouped_swiglu_forward(Stream& stream, const GroupedSwigluForwardArgs& args) {
  run_on(stream, [args] {
    Matrix gate_up = multiply_transposed(args.x, args.weight, args.starts, args.scales);
    // act is computed from the stored values, as grouped_swiglu would compute it.
    for (double& value : gate_up.values) value = rounded_to(args.gate_up.dtype, value);
    const Matrix row_weight = read_rows(args.row_weight, gate_up.rows);
    const Matrix act = activation(gate_up, row_weight);
    write_rows(args.gate_up, gate_up);
    write_rows(args.act, act);
    raise_by_rows(args.amax, args.act, act.rows);
  });
}

void grouped_swiglu(Stream& stream, const GroupedSwigluArgs& args) {
  run_on(stream, [args] {
    const int64_t end = read_index(args.end, 0);
    const Matrix act = activation(read_rows(args.gate_up, end), read_rows(args.row_weight, end));
    write_rows(args.act, act);
    raise_by_rows(args.amax, args.act, act.rows);
  });
}

void grouped_backward_input(Stream& stream, const GroupedBackwardInputArgs& args) {
  run_on(stream,
         [args] { write_rows(args.dx, multiply(args.dy, args.weight, args.starts, args.scales)); });
}

void grouped_swiglu_backward(Stream& stream, const GroupedSwigluBackwardArgs& args) {
  run_on(stream, [args] { swiglu_backward_of(args); });
}

void grouped_backward_weight(Stream& stream, const GroupedBackwardWeightArgs& args) {
  run_on(stream, [args] { weight_gradient(args); });
}

}  // namespace trireme::kernels::reference
