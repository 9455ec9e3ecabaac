// SPDX-License-Identifier: Apache-2.0
// value = alpha op(a) op(b) + bias + residual + beta d;  d = act(value);  a_sum += row sums of
// op(a);  d_sum += column sums of d;  gelu_again = gelu(gelu_grad_of);  gelu_slope = gelu'(value).
#include "base/check.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/rows.h"

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
  TRIREME_CHECK(a.cols == b.rows, "inner sizes {} and {}", a.cols, b.rows);
  Matrix d(a.rows, b.cols);
  for (int64_t m = 0; m < a.rows; ++m) {
    for (int64_t k = 0; k < a.cols; ++k) {
      for (int64_t n = 0; n < b.cols; ++n) d(m, n) += a(m, k) * b(k, n);
    }
  }
  return d;
}

void run(const GemmArgs& args) {
  TRIREME_CHECK(!args.scale_a && !args.scale_b, "the reference has no fp8");
  TRIREME_CHECK(!args.residual || args.beta == 0, "a residual and beta = {}", args.beta);
  const Matrix a = args.trans_a ? transposed(read(args.a)) : read(args.a);
  const Matrix b = args.trans_b ? transposed(read(args.b)) : read(args.b);
  const Matrix bias = read(args.bias), residual = read(args.residual);
  const Matrix gelu_grad_of = read(args.gelu_grad_of), factor = read(args.factor);
  const Matrix old = args.beta != 0 ? read(args.d) : Matrix();
  Matrix a_sum = read(args.a_sum), d_sum = read(args.d_sum);

  Matrix value = product(a, b), d(a.rows, b.cols), gelu_again(a.rows, b.cols);
  for (int64_t m = 0; m < d.rows; ++m) {
    for (int64_t n = 0; n < d.cols; ++n) {
      double& v = value(m, n);
      v *= static_cast<double>(args.alpha);
      if (args.bias) v += bias(n);
      if (args.residual) v += residual(m, n);
      if (args.beta != 0) v += static_cast<double>(args.beta) * old(m, n);
      d(m, n) = v;
      if (args.gelu_grad_of) d(m, n) *= gelu_derivative(gelu_grad_of(m, n));
      if (args.factor) d(m, n) *= factor(m, n);
      if (args.d_sum) d_sum(n) += rounded_to(args.d.dtype, d(m, n));
      if (args.gelu_again) gelu_again(m, n) = gelu(gelu_grad_of(m, n));
    }
  }
  if (args.gelu_input) {
    write(args.gelu_input, value);
    const Matrix stored = read(args.gelu_input);
    for (int64_t m = 0; m < d.rows; ++m) {
      for (int64_t n = 0; n < d.cols; ++n) d(m, n) = gelu(stored(m, n));
    }
  }
  if (args.gelu_slope) {
    for (int64_t m = 0; m < d.rows; ++m) {
      for (int64_t n = 0; n < d.cols; ++n) {
        const double stored = rounded_to(args.d.dtype, value(m, n));
        d(m, n) = gelu(stored);
        value(m, n) = gelu_derivative(stored);
      }
    }
    write(args.gelu_slope, value);
  }
  if (args.a_sum) {
    for (int64_t m = 0; m < a.rows; ++m) {
      for (int64_t k = 0; k < a.cols; ++k) a_sum(m) += a(m, k);
    }
  }
  write(args.d, d);
  write(args.a_sum, a_sum);
  write(args.d_sum, d_sum);
  write(args.gelu_again, gelu_again);
}

}  // namespace

void gemm(Stream& stream, const GemmArgs& args) {
  run_on(stream, [args] { run(args); });
}

}  // namespace trireme::kernels::reference
