// SPDX-License-Identifier: Apache-2.0
// xhat = (s - mean) r, y = xhat * weight + bias; for rms the mean is taken as 0.
//   g = dy * weight;  dx = r (g - mean(g) - xhat mean(g xhat)) + dresidual, for rms without
//   mean(g).
#include <cmath>

#include "kernels/reference/amax.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

void forward(const NormForwardArgs& args) {
  Matrix s = read(args.x);
  const Matrix residual = read(args.residual), weight = read(args.weight), bias = read(args.bias);
  const bool is_layer = args.kind == NormKind::layer;
  const auto D = static_cast<double>(s.cols);
  Matrix y(s.rows, s.cols), stats(s.rows, norm_stats(args.kind));
  for (int64_t t = 0; t < s.rows; ++t) {
    double mean = 0, squares = 0;
    for (int64_t d = 0; d < s.cols; ++d) {
      if (args.residual) s(t, d) = rounded_to(args.sum.dtype, s(t, d) + residual(t, d));
      if (is_layer) mean += s(t, d) / D;
    }
    for (int64_t d = 0; d < s.cols; ++d) squares += (s(t, d) - mean) * (s(t, d) - mean);
    // Rounded as they are stored, so that the backward recomputes the same y from them.
    const double r =
        rounded_to(args.stats.dtype, 1 / std::sqrt(squares / D + static_cast<double>(args.eps)));
    mean = rounded_to(args.stats.dtype, mean);
    for (int64_t d = 0; d < s.cols; ++d) {
      y(t, d) = (s(t, d) - mean) * r * weight(d) + (args.bias ? bias(d) : 0);
    }
    if (is_layer) stats(t, 0) = mean;
    stats(t, is_layer ? 1 : 0) = r;
  }
  if (args.residual) write(args.sum, s);
  write(args.y, y);
  write(args.stats, stats);
  raise_by(args.amax, args.y);
}

void backward(const NormBackwardArgs& args) {
  const Matrix dy = read(args.dy), x = read(args.x), stats = read(args.stats);
  const Matrix weight = read(args.weight), bias = read(args.bias);
  const Matrix dresidual = read(args.dresidual);
  const bool is_layer = args.kind == NormKind::layer;
  const auto D = static_cast<double>(x.cols);
  Matrix dweight = read(args.dweight), dbias = read(args.dbias);
  Matrix dresidual_sum = read(args.dresidual_sum);
  Matrix dx(x.rows, x.cols), y(x.rows, x.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    const double mean = is_layer ? stats(t, 0) : 0;
    const double r = stats(t, is_layer ? 1 : 0);
    double mean_g = 0, mean_g_xhat = 0;
    for (int64_t d = 0; d < x.cols; ++d) {
      const double xhat = (x(t, d) - mean) * r, g = dy(t, d) * weight(d);
      if (is_layer) mean_g += g / D;
      mean_g_xhat += g * xhat / D;
      dweight(d) += dy(t, d) * xhat;
      if (args.dbias) dbias(d) += dy(t, d);
    }
    for (int64_t d = 0; d < x.cols; ++d) {
      const double xhat = (x(t, d) - mean) * r, g = dy(t, d) * weight(d);
      dx(t, d) = r * (g - mean_g - xhat * mean_g_xhat);
      if (args.dresidual) dx(t, d) += dresidual(t, d);
      if (args.dresidual_sum) dresidual_sum(d) += dresidual(t, d);
      y(t, d) = xhat * weight(d) + (args.bias ? bias(d) : 0);
    }
  }
  write(args.dx, dx);
  write(args.y, y);
  write(args.dweight, dweight);
  write(args.dbias, dbias);
  write(args.dresidual_sum, dresidual_sum);
  raise_by(args.amax, args.dx);
}

}  // namespace

void norm_forward(Stream& stream, const NormForwardArgs& args) {
  run_on(stream, [args] { forward(args); });
}

void norm_backward(Stream& stream, const NormBackwardArgs& args) {
  run_on(stream, [args] { backward(args); });
}

}  // namespace trireme::kernels::reference
