// SPDX-License-Identifier: Apache-2.0
// Each head is (optionally) divided by its rms and weighted, then its pairs (i, i + K/2) are
// rotated by the angle of the token's position. Backward: the opposite rotation gives du; then,
// with xhat = x r and g = du * weight,
//   dx = r (g - xhat mean(g xhat)),   dweight += sum over tokens and heads of du * xhat.
#include <cmath>

#include "kernels/cpu/partials.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

constexpr int64_t max_head_dim = max_segment;

// y = u rotated, where sin_sign -1 is the opposite rotation. y may be u.
struct Rotation {
  const float* cos_sin;  // of the token's position
  int64_t K;
  float sin_sign;

  void apply(const float* u, float* y) const {
    const int64_t half = K / 2;
    const float* cosine = cos_sin;
    const float* sine = cos_sin + half;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const float low = u[i], high = u[i + half], c = cosine[i], s = sin_sign * sine[i];
      y[i] = low * c - high * s;
      y[i + half] = high * c + low * s;
    }
  }
};

void forward_row(const RopeForwardArgs& args, int64_t t, const float* q_weight,
                 const float* k_weight) {
  const int64_t heads = args.x.shape[1], K = args.x.shape[2];
  const Rotation rotation = {floats_at(args.table, index_at(args.positions, t)), K, 1.0F};
  SegmentBuffer xs, us, ys;
  for (int64_t h = 0; h < heads; ++h) {
    const Segment head = {t, h * K, K};
    const float* u = values_of(args.x, head, xs);
    if (q_weight != nullptr) {
      double squares = 0;
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < K; ++i) {
        squares += static_cast<double>(u[i]) * static_cast<double>(u[i]);
      }
      const double mean = squares / static_cast<double>(K);
      const auto r = static_cast<float>(1 / std::sqrt(mean + static_cast<double>(args.eps)));
      floats_at(args.rstd, t)[h] = r;
      const float* weight = h < args.q_heads ? q_weight : k_weight;
#pragma omp simd
      for (int64_t i = 0; i < K; ++i) us[i] = weight[i] * (u[i] * r);
      u = us;
    }
    float* y = place_for(args.y, head, ys);
    rotation.apply(u, y);
    store(args.y, head, y);
  }
}

void forward(base::ThreadPool& pool, const RopeForwardArgs& args) {
  const int64_t K = args.x.shape[2];
  TRIREME_CHECK(K <= max_head_dim, "head size {}", K);
  SegmentBuffer q_buffer, k_buffer;
  const float* q_weight = args.q_weight ? values_of(args.q_weight, {0, 0, K}, q_buffer) : nullptr;
  const float* k_weight = args.k_weight ? values_of(args.k_weight, {0, 0, K}, k_buffer) : nullptr;
  for_each_row(pool, args.x.rows(), args.x.cols(),
               [&](int64_t t) { forward_row(args, t, q_weight, k_weight); });
}

// The backward of the norm for one head: du becomes dx, and du * xhat is added to dweight.
struct HeadNorm {
  const float* x;
  const float* weight;
  float r;
  double* dweight;

  void apply(float* du, int64_t K) const {
    double sum_g_xhat = 0;
#pragma omp simd reduction(+ : sum_g_xhat)
    for (int64_t i = 0; i < K; ++i) {
      const float xhat = x[i] * r;
      dweight[i] += static_cast<double>(du[i] * xhat);
      sum_g_xhat += static_cast<double>(du[i] * weight[i] * xhat);
    }
    const auto mean_g_xhat = static_cast<float>(sum_g_xhat / static_cast<double>(K));
#pragma omp simd
    for (int64_t i = 0; i < K; ++i) du[i] = r * (du[i] * weight[i] - x[i] * r * mean_g_xhat);
  }
};

struct Weights {
  const float* q = nullptr;
  const float* k = nullptr;
};

// Rows [begin, end) of dx, and their sums for dq_weight and dk_weight side by side in `partial`.
void backward_rows(const RopeBackwardArgs& args, int64_t begin, int64_t end, const Weights& weights,
                   float* partial) {
  const int64_t heads = args.dy.shape[1], K = args.dy.shape[2];
  double sums[2][max_head_dim];
  for (int64_t i = 0; i < K; ++i) sums[0][i] = sums[1][i] = 0;
  SegmentBuffer xs, dys, dus;
  for (int64_t t = begin; t < end; ++t) {
    const Rotation back = {floats_at(args.table, index_at(args.positions, t)), K, -1.0F};
    for (int64_t h = 0; h < heads; ++h) {
      const Segment head = {t, h * K, K};
      float* du = place_for(args.dx, head, dus);
      back.apply(values_of(args.dy, head, dys), du);
      if (weights.q != nullptr) {
        const bool is_q = h < args.q_heads;
        const HeadNorm norm = {.x = values_of(args.x, head, xs),
                               .weight = is_q ? weights.q : weights.k,
                               .r = floats_at(args.rstd, t)[h],
                               .dweight = sums[is_q ? 0 : 1]};
        norm.apply(du, K);
      }
      store(args.dx, head, du);
    }
  }
  if (weights.q == nullptr) return;
  for (int64_t i = 0; i < K; ++i) {
    partial[i] = static_cast<float>(sums[0][i]);
    partial[K + i] = static_cast<float>(sums[1][i]);
  }
}

void backward(base::ThreadPool& pool, const RopeBackwardArgs& args) {
  const int64_t T = args.dy.rows(), K = args.dy.shape[2];
  TRIREME_CHECK(K <= max_head_dim, "head size {}", K);
  SegmentBuffer q_buffer, k_buffer;
  Weights weights;
  if (args.q_weight) {
    weights.q = values_of(args.q_weight, {0, 0, K}, q_buffer);
    weights.k = values_of(args.k_weight, {0, 0, K}, k_buffer);
  }
  pool.for_each(norm_partials(T), [&](int64_t p) {
    const int64_t begin = p * spec::norm_rows_per_partial;
    float* partial = args.q_weight ? floats_at(args.partials, p) : nullptr;
    backward_rows(args, begin, std::min(T, begin + spec::norm_rows_per_partial), weights, partial);
  });
  if (args.q_weight) {
    add_partials(pool, args.partials, 0, args.dq_weight);
    add_partials(pool, args.partials, K, args.dk_weight);
  }
}

}  // namespace

void rope_forward(Stream& stream, const RopeForwardArgs& args) { run_on(stream, args, forward); }
void rope_backward(Stream& stream, const RopeBackwardArgs& args) { run_on(stream, args, backward); }

}  // namespace trireme::kernels::cpu
