// SPDX-License-Identifier: Apache-2.0
// value = alpha op(a) op(b) + beta d;  d = epilogue(value), as kernels/epilogue.h states.
#include "base/check.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

Matrix transposed(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < a.cols; ++c) t(c, r) = a(r, c);
  }
  return t;
}

Matrix product(const Matrix& a, const Matrix& b) {
  TRIREME_CHECK(a.cols == b.rows, "gemm: inner sizes {} and {} differ", a.cols, b.rows);
  Matrix d(a.rows, b.cols);
  for (int64_t m = 0; m < a.rows; ++m) {
    for (int64_t k = 0; k < a.cols; ++k) {
      for (int64_t n = 0; n < b.cols; ++n) d(m, n) += a(m, k) * b(k, n);
    }
  }
  return d;
}

// The values of an operand: codes times their scales, if it has scales.
Matrix scaled(const ConstTensor& operand, const ConstTensor& scale, ScaleShape shape) {
  Matrix values = read(operand);
  if (!scale) return values;
  const Matrix scales = read(scale);
  const auto scale_at = [&](int64_t r, int64_t c) {
    const int64_t block = c / spec::scale_block;
    if (shape == ScaleShape::tensor) return scales(0);
    return shape == ScaleShape::row_128 ? scales(block, r) : scales(r / spec::scale_block, block);
  };
  for (int64_t r = 0; r < values.rows; ++r) {
    for (int64_t c = 0; c < values.cols; ++c) values(r, c) *= scale_at(r, c);
  }
  return values;
}

template <typename Function>
void for_each(Matrix& x, const Function& function) {
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t n = 0; n < x.cols; ++n) function(x(m, n), m, n);
  }
}

// Adds the sums of the columns of d, as stored, to `sum`.
void add_column_sums(const GemmArgs& args, const Matrix& d, const Tensor& sum) {
  if (!sum) return;
  Matrix total = read(sum);
  for (int64_t m = 0; m < d.rows; ++m) {
    for (int64_t n = 0; n < d.cols; ++n) total(n) += rounded_to(args.d.dtype, d(m, n));
  }
  write(sum, total);
}

// ---- finish(): writes d and what else the epilogue writes, from value

void finish(const GemmArgs& args, Matrix value, const AddTerms& e) {
  const Matrix bias = read(e.bias), residual = read(e.residual);
  for_each(value, [&](double& v, int64_t m, int64_t n) {
    if (e.bias) v += bias(n);
    if (e.residual) v += residual(m, n);
  });
  write(args.d, value);
}

// u = value + bias, rounded to the type of d.
Matrix gelu_input(const GemmArgs& args, Matrix value, const ConstTensor& bias_tensor) {
  const Matrix bias = read(bias_tensor);
  for_each(value, [&](double& v, int64_t /*m*/, int64_t n) {
    v = rounded_to(args.d.dtype, bias_tensor ? v + bias(n) : v);
  });
  return value;
}

void finish(const GemmArgs& args, const Matrix& value, const GeluForward& e) {
  Matrix u = gelu_input(args, value, e.bias);
  write(e.input, u);
  for_each(u, [](double& v, int64_t, int64_t) { v = gelu(v); });
  write(args.d, u);
}

void finish(const GemmArgs& args, const Matrix& value, const GeluForwardSlope& e) {
  Matrix d = gelu_input(args, value, e.bias), slope = d;
  for_each(d, [](double& v, int64_t, int64_t) { v = gelu(v); });
  for_each(slope, [](double& v, int64_t, int64_t) { v = gelu_derivative(v); });
  write(args.d, d);
  write(e.slope, slope);
}

void finish(const GemmArgs& args, Matrix value, const GeluGradient& e) {
  Matrix x = read(e.input);
  for_each(value, [&](double& v, int64_t m, int64_t n) { v *= gelu_derivative(x(m, n)); });
  for_each(x, [](double& v, int64_t, int64_t) { v = gelu(v); });
  write(args.d, value);
  add_column_sums(args, value, e.d_sum);
  write(e.gelu, x);
}

void finish(const GemmArgs& args, Matrix value, const ScaleBy& e) {
  const Matrix factor = read(e.factor);
  for_each(value, [&](double& v, int64_t m, int64_t n) { v *= factor(m, n); });
  write(args.d, value);
  add_column_sums(args, value, e.d_sum);
}

void finish(const GemmArgs& args, const Matrix& value, const BiasGradient& e) {
  const Matrix stored = scaled(args.a, args.scale_a, args.shape_a);
  const Matrix a = args.trans_a ? transposed(stored) : stored;
  Matrix sum = read(e.sum);
  for (int64_t m = 0; m < a.rows; ++m) {
    for (int64_t k = 0; k < a.cols; ++k) sum(m) += a(m, k);
  }
  write(args.d, value);
  write(e.sum, sum);
}

void run(const GemmArgs& args) {
  const Matrix stored_a = scaled(args.a, args.scale_a, args.shape_a);
  const Matrix stored_b = scaled(args.b, args.scale_b, args.shape_b);
  const Matrix a = args.trans_a ? transposed(stored_a) : stored_a;
  const Matrix b = args.trans_b ? transposed(stored_b) : stored_b;
  const Matrix old = args.beta != 0 ? read(args.d) : Matrix();
  Matrix value = product(a, b);
  for_each(value, [&](double& v, int64_t m, int64_t n) {
    v *= static_cast<double>(args.alpha);
    if (args.beta != 0) v += static_cast<double>(args.beta) * old(m, n);
  });
  std::visit([&](const auto& e) { finish(args, value, e); }, args.epilogue);
}

}  // namespace

void gemm(Stream& stream, const GemmArgs& args) {
  run_on(stream, [args] { run(args); });
}

}  // namespace trireme::kernels::reference
