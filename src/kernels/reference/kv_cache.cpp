// SPDX-License-Identifier: Apache-2.0
// The ops of decoding: y = x weight^T + bias + residual, d[rows[t]] = x[t] and its inverse, and
// o = softmax(scale q k^T) v over cached keys and values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"

namespace trireme::kernels::reference {
namespace {

void multiply(const RowProductArgs& args) {
  const Matrix x = read(args.x), weight = read(args.weight), bias = read(args.bias);
  const Matrix residual = read(args.residual);
  Matrix y(x.rows, weight.rows);
  for (int64_t t = 0; t < y.rows; ++t) {
    for (int64_t n = 0; n < y.cols; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < x.cols; ++k) sum += x(t, k) * weight(n, k);
      if (args.bias) sum += bias(n);
      if (args.residual) sum += residual(t, n);
      y(t, n) = sum;
    }
  }
  write(args.y, y);
}

void scatter(const ScatterRowsArgs& args) {
  const Matrix x = read(args.x);
  for (int64_t t = 0; t < x.rows; ++t) {
    const int64_t row = read_index(args.rows, t);
    if (row < 0) continue;
    Matrix one(1, x.cols);
    for (int64_t c = 0; c < x.cols; ++c) one(0, c) = x(t, c);
    write(args.d.slice_rows(row, 1), one);
  }
}

void gather(const GatherRowsArgs& args) {
  const Matrix x = read(args.x);
  Matrix d(args.d.rows(), x.cols);
  for (int64_t t = 0; t < d.rows; ++t) {
    const int64_t row = read_index(args.rows, t);
    TRIREME_CHECK(row >= 0 && row < x.rows, "row {} of {}", row, x.rows);
    for (int64_t c = 0; c < x.cols; ++c) d(t, c) = x(row, c);
  }
  write(args.d, d);
}

void attend(const AttentionCachedArgs& args) {
  const Matrix q = read(args.q), cache = read(args.cache);
  const int64_t H = args.q.shape[1], K = args.q.shape[2], G = args.cache.shape[1] / 2;
  Matrix o(q.rows, q.cols);
  for (int64_t t = 0; t < q.rows; ++t) {
    const int64_t first = read_index(args.first_rows, t), length = read_index(args.lengths, t);
    for (int64_t h = 0; h < H; ++h) {
      const int64_t key = h / (H / G) * K, value = key + G * K;
      std::vector<double> score;
      double highest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t j = first; j < first + length; ++j) {
        double product = 0;
        for (int64_t i = 0; i < K; ++i) product += q(t, h * K + i) * cache(j, key + i);
        score.push_back(static_cast<double>(args.scale) * product);
        highest = std::max(highest, score.back());
      }
      for (double& x : score) sum += x = std::exp(x - highest);
      for (int64_t j = 0; j < length; ++j) {
        const double p = score[static_cast<size_t>(j)] / sum;
        for (int64_t i = 0; i < K; ++i) o(t, h * K + i) += p * cache(first + j, value + i);
      }
    }
  }
  write(args.o, o);
}

}  // namespace

void row_product(Stream& stream, const RowProductArgs& args) {
  run_on(stream, [args] { multiply(args); });
}

void scatter_rows(Stream& stream, const ScatterRowsArgs& args) {
  run_on(stream, [args] { scatter(args); });
}

void gather_rows(Stream& stream, const GatherRowsArgs& args) {
  run_on(stream, [args] { gather(args); });
}

void attention_cached(Stream& stream, const AttentionCachedArgs& args) {
  run_on(stream, [args] { attend(args); });
}

}  // namespace trireme::kernels::reference
