// SPDX-License-Identifier: Apache-2.0
// Rotation of the pairs (i, i + K/2) of each head by the angle of its position, after an optional
// RMS norm of the head; backward: the opposite rotation, then the backward of the norm.
#include <cmath>

#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

// Rotates the K values from `first` on in row t; direction -1 is the transposed rotation.
void rotate(Matrix& u, int64_t t, int64_t first, const Matrix& table, int64_t position,
            double direction) {
  const int64_t half = table.cols / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double cosine = table(position, i), sine = direction * table(position, half + i);
    const double low = u(t, first + i), high = u(t, first + half + i);
    u(t, first + i) = low * cosine - high * sine;
    u(t, first + half + i) = high * cosine + low * sine;
  }
}

void forward(const RopeForwardArgs& args) {
  const int64_t heads = args.x.shape[1], K = args.x.shape[2];
  const Matrix table = read(args.table);
  const Matrix q_weight = read(args.q_weight), k_weight = read(args.k_weight);
  Matrix u = read(args.x), rstd(u.rows, heads);
  for (int64_t t = 0; t < u.rows; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t first = h * K;
      if (args.q_weight) {
        const Matrix& weight = h < args.q_heads ? q_weight : k_weight;
        double squares = 0;
        for (int64_t i = 0; i < K; ++i) squares += u(t, first + i) * u(t, first + i);
        const double mean = squares / static_cast<double>(K);
        rstd(t, h) = 1 / std::sqrt(mean + static_cast<double>(args.eps));
        for (int64_t i = 0; i < K; ++i) u(t, first + i) *= weight(i) * rstd(t, h);
      }
      rotate(u, t, first, table, read_index(args.positions, t), 1);
    }
  }
  write(args.y, u);
  if (args.q_weight) write(args.rstd, rstd);
}

void backward(const RopeBackwardArgs& args) {
  const int64_t heads = args.dy.shape[1], K = args.dy.shape[2];
  const Matrix table = read(args.table), x = read(args.x), rstd = read(args.rstd);
  const Matrix q_weight = read(args.q_weight), k_weight = read(args.k_weight);
  Matrix dq_weight = read(args.dq_weight), dk_weight = read(args.dk_weight);
  Matrix du = read(args.dy);
  for (int64_t t = 0; t < du.rows; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t first = h * K;
      rotate(du, t, first, table, read_index(args.positions, t), -1);
      if (!args.q_weight) continue;
      const Matrix& weight = h < args.q_heads ? q_weight : k_weight;
      Matrix& dweight = h < args.q_heads ? dq_weight : dk_weight;
      const double r = rstd(t, h);
      double mean_g_xhat = 0;
      for (int64_t i = 0; i < K; ++i) {
        const double xhat = x(t, first + i) * r;
        mean_g_xhat += du(t, first + i) * weight(i) * xhat / static_cast<double>(K);
        dweight(i) += du(t, first + i) * xhat;
      }
      for (int64_t i = 0; i < K; ++i) {
        const double xhat = x(t, first + i) * r;
        du(t, first + i) = r * (du(t, first + i) * weight(i) - xhat * mean_g_xhat);
      }
    }
  }
  write(args.dx, du);
  write(args.dq_weight, dq_weight);
  write(args.dk_weight, dk_weight);
}

}  // namespace

void rope_forward(Stream& stream, const RopeForwardArgs& args) {
  run_on(stream, [args] { forward(args); });
}

void rope_backward(Stream& stream, const RopeBackwardArgs& args) {
  run_on(stream, [args] { backward(args); });
}

}  // namespace trireme::kernels::reference
