// SPDX-License-Identifier: Apache-2.0
// s = x + residual, xhat = (s - mean) r, y = xhat * weight + bias; rms takes the mean as 0.
//   g = dy * weight;  dx = r (g - mean(g) - xhat mean(g xhat)) + dresidual, for rms without
//   mean(g).
// Sums along a row are fp64. Sums over rows (of weight gradients and dresidual) are taken over
// norm_rows_per_partial rows in fp32, one task each, and these partial sums in fp64 in their order.
#include <cmath>

#include "kernels/cpu/quantize/amax.h"
#include "kernels/cpu/partials.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

struct NormMemory;  // tag of thread_floats()

// Four rows of D floats for conversions.
struct RowBuffers {
  explicit RowBuffers(int64_t D) : memory(thread_floats<NormMemory>(4 * D)), width(D) {}
  float* operator[](int64_t i) const { return memory + i * width; }

  float* memory;
  int64_t width;
};

double sum_of(const float* x, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
  return sum;
}

double squares_around(double mean, const float* x, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(x[i]) - mean;
    sum += difference * difference;
  }
  return sum;
}

// The row s, after it was stored (and rounded) in `sum` if there is a residual.
const float* summed_row(const NormForwardArgs& args, const Segment& row,
                        const RowBuffers& buffers) {
  const float* x = values_of(args.x, row, buffers[0]);
  if (!args.residual) return x;
  const float* residual = values_of(args.residual, row, buffers[1]);
  float* s = place_for(args.sum, row, buffers[0]);
#pragma omp simd
  for (int64_t i = 0; i < row.count; ++i) s[i] = x[i] + residual[i];
  store(args.sum, row, s);
  return values_of(args.sum, row, buffers[0]);
}

// y = xhat * weight + bias, from the statistics as they are stored.
struct Scaling {
  float mean, r;
  const float *weight, *bias;  // bias may be absent
};
void scale_row(const float* s, const Scaling& by, float* y, int64_t count) {
  if (by.bias != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      y[i] = (s[i] - by.mean) * by.r * by.weight[i] + by.bias[i];
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = (s[i] - by.mean) * by.r * by.weight[i];
  }
}

void forward_row(const NormForwardArgs& args, int64_t t, const float* weight, const float* bias) {
  const int64_t D = args.x.cols();
  const RowBuffers buffers(D);
  const Segment row = {t, 0, D};
  const float* s = summed_row(args, row, buffers);

  const bool is_layer = args.kind == NormKind::layer;
  const auto width = static_cast<double>(D);
  const double mean = is_layer ? sum_of(s, D) / width : 0;
  const double variance = squares_around(mean, s, D) / width;
  const double r = 1 / std::sqrt(variance + static_cast<double>(args.eps));
  float* stats = floats_at(args.stats, t);
  if (is_layer) stats[0] = static_cast<float>(mean);
  stats[is_layer ? 1 : 0] = static_cast<float>(r);

  float* y = place_for(args.y, row, buffers[1]);
  scale_row(s, {static_cast<float>(mean), static_cast<float>(r), weight, bias}, y, D);
  store(args.y, row, y);
  raise_by(args.amax, args.y, row);
}

struct ParameterMemory;  // tag of thread_floats(): weight and bias, in the thread that calls the
                         // pool

void forward(base::ThreadPool& pool, const NormForwardArgs& args) {
  const int64_t D = args.x.cols();
  float* memory = thread_floats<ParameterMemory>(2 * D);
  const float* weight = values_of(args.weight, {0, 0, D}, memory);
  const float* bias = args.bias ? values_of(args.bias, {0, 0, D}, memory + D) : nullptr;
  for_each_row(pool, args.x.rows(), D, [&](int64_t t) { forward_row(args, t, weight, bias); });
}

void add_row(const float* x, float* sums, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sums[i] += x[i];
}

// Writes dx[t] and y[t] and adds the row's share to the partial sums.
void backward_row(const NormBackwardArgs& args, int64_t t, const float* weight, const float* bias,
                  float* partial) {
  const int64_t D = args.x.cols();
  const RowBuffers buffers(D);
  const Segment row = {t, 0, D};
  const bool is_layer = args.kind == NormKind::layer;
  const float* stats = floats_at(args.stats, t);
  const float mean = is_layer ? stats[0] : 0, r = stats[is_layer ? 1 : 0];
  const float* dy = values_of(args.dy, row, buffers[0]);
  const float* x = values_of(args.x, row, buffers[1]);
  if (args.y) {
    float* y = place_for(args.y, row, buffers[2]);
    scale_row(x, {mean, r, weight, bias}, y, D);
    store(args.y, row, y);
  }

  double sum_g = 0, sum_g_xhat = 0;
  float* dweight = partial;
  if (is_layer) {
    float* dbias = partial + D;
#pragma omp simd reduction(+ : sum_g, sum_g_xhat)
    for (int64_t i = 0; i < D; ++i) {
      const float xhat = (x[i] - mean) * r, g = dy[i] * weight[i];
      dweight[i] += dy[i] * xhat;
      dbias[i] += dy[i];
      sum_g += static_cast<double>(g);
      sum_g_xhat += static_cast<double>(g * xhat);
    }
  } else {
#pragma omp simd reduction(+ : sum_g_xhat)
    for (int64_t i = 0; i < D; ++i) {
      const float xhat = x[i] * r, g = dy[i] * weight[i];
      dweight[i] += dy[i] * xhat;
      sum_g_xhat += static_cast<double>(g * xhat);
    }
  }

  const auto mean_g = static_cast<float>(sum_g / static_cast<double>(D));
  const auto mean_g_xhat = static_cast<float>(sum_g_xhat / static_cast<double>(D));
  float* dx = place_for(args.dx, row, buffers[2]);
  if (args.dresidual) {
    const float* dresidual = values_of(args.dresidual, row, buffers[3]);
    // Before dx, which may be the same tensor.
    if (args.dresidual_sum) add_row(dresidual, partial + D * norm_stats(args.kind), D);
#pragma omp simd
    for (int64_t i = 0; i < D; ++i) {
      const float xhat = (x[i] - mean) * r, g = dy[i] * weight[i];
      dx[i] = r * (g - mean_g - xhat * mean_g_xhat) + dresidual[i];
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < D; ++i) {
      const float xhat = (x[i] - mean) * r, g = dy[i] * weight[i];
      dx[i] = r * (g - mean_g - xhat * mean_g_xhat);
    }
  }
  store(args.dx, row, dx);
  raise_by(args.amax, args.dx, row);
}

void backward(base::ThreadPool& pool, const NormBackwardArgs& args) {
  const int64_t T = args.x.rows(), D = args.x.cols();
  float* memory = thread_floats<ParameterMemory>(2 * D);
  const float* weight = values_of(args.weight, {0, 0, D}, memory);
  const float* bias = args.bias ? values_of(args.bias, {0, 0, D}, memory + D) : nullptr;
  pool.for_each(norm_partials(T), [&](int64_t p) {
    float* partial = floats_at(args.partials, p);
    std::fill_n(partial, args.partials.cols(), 0.0F);
    const int64_t end = std::min(T, (p + 1) * spec::norm_rows_per_partial);
    for (int64_t t = p * spec::norm_rows_per_partial; t < end; ++t) {
      backward_row(args, t, weight, bias, partial);
    }
  });
  add_partials(pool, args.partials, 0, args.dweight);
  if (args.dbias) add_partials(pool, args.partials, D, args.dbias);
  if (args.dresidual_sum) {
    add_partials(pool, args.partials, D * norm_stats(args.kind), args.dresidual_sum);
  }
}

}  // namespace

void norm_forward(Stream& stream, const NormForwardArgs& args) { run_on(stream, args, forward); }
void norm_backward(Stream& stream, const NormBackwardArgs& args) { run_on(stream, args, backward); }

}  // namespace trireme::kernels::cpu
