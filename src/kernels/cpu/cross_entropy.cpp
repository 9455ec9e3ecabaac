// SPDX-License-Identifier: Apache-2.0
// stats = {max, sum of exp(logit - max), logit of the label};  loss = log(sum) + max - target;
// gradient of the summed loss = exp(logit - max) / sum - onehot, zero where the label is negative,
// times `scale`.
#include <cmath>
#include <limits>

#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cpu {
namespace {

// fp32 within a segment, fp64 across segments.
void stats_of_row(const CrossEntropyStatsArgs& args, int64_t t) {
  const int64_t V = args.logits.cols();
  SegmentBuffer buffer;
  float highest = -std::numeric_limits<float>::infinity();
  for (int64_t first = 0; first < V; first += max_segment) {
    const Segment s = {t, first, std::min(max_segment, V - first)};
    const float* x = values_of(args.logits, s, buffer);
#pragma omp simd reduction(max : highest)
    for (int64_t i = 0; i < s.count; ++i) highest = x[i] > highest ? x[i] : highest;
  }
  double sum = 0;
  for (int64_t first = 0; first < V; first += max_segment) {
    const Segment s = {t, first, std::min(max_segment, V - first)};
    const float* x = values_of(args.logits, s, buffer);
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = 0; i < s.count; ++i) part += exp_of(x[i] - highest);
    sum += static_cast<double>(part);
  }
  const int64_t label = index_at(args.labels, t), column = label - args.first_column;
  const bool is_here = label >= 0 && column >= 0 && column < V;
  float* stats = floats_at(args.stats, t);
  stats[0] = highest;
  stats[1] = static_cast<float>(sum);
  stats[2] = is_here ? *values_of(args.logits, {t, column, 1}, buffer) : 0;
}

void grad_of_segment(const CrossEntropyGradArgs& args, const Segment& s) {
  const int64_t label = index_at(args.labels, s.row);
  SegmentBuffer logits, grads;
  float* grad = place_for(args.logits, s, grads);
  if (label < 0) {
    std::fill_n(grad, s.count, 0.0F);
  } else {
    const float* stats = floats_at(args.stats, s.row);
    const float highest = stats[0], factor = 1 / stats[1];
    const float* x = values_of(args.logits, s, logits);
#pragma omp simd
    for (int64_t i = 0; i < s.count; ++i) grad[i] = exp_of(x[i] - highest) * factor;
    const int64_t column = label - args.first_column - s.first;
    if (column >= 0 && column < s.count) grad[column] -= 1;
    if (args.scale) {
      const float scale = *floats_at(args.scale, 0);
#pragma omp simd
      for (int64_t i = 0; i < s.count; ++i) grad[i] *= scale;
    }
  }
  store(args.logits, s, grad);
}

void add_losses(const CrossEntropyGradArgs& args) {
  double loss = 0;
  int64_t tokens = 0;
  for (int64_t t = 0; t < args.logits.rows(); ++t) {
    double token_loss = 0;
    if (index_at(args.labels, t) >= 0) {
      const float* stats = floats_at(args.stats, t);
      token_loss = std::log(static_cast<double>(stats[1])) + static_cast<double>(stats[0]) -
                   static_cast<double>(stats[2]);
      tokens += 1;
    }
    loss += token_loss;
    if (args.token_losses) *floats_at(args.token_losses, t) = static_cast<float>(token_loss);
  }
  auto& sums = *reinterpret_cast<StepSums*>(args.sums.data);
  sums.loss += loss;
  sums.tokens += tokens;
}

void merge_row(const CrossEntropyMergeArgs& args, int64_t t) {
  const int64_t rows = args.stats.rows();
  float highest = floats_at(args.parts, t)[0];
  for (int64_t i = t + rows; i < args.parts.rows(); i += rows) {
    highest = std::max(highest, floats_at(args.parts, i)[0]);
  }
  double sum = 0, target = 0;
  for (int64_t i = t; i < args.parts.rows(); i += rows) {
    const float* part = floats_at(args.parts, i);
    sum += static_cast<double>(part[1]) * std::exp(static_cast<double>(part[0] - highest));
    target += static_cast<double>(part[2]);
  }
  float* stats = floats_at(args.stats, t);
  stats[0] = highest;
  stats[1] = static_cast<float>(sum);
  stats[2] = static_cast<float>(target);
}

}  // namespace

void cross_entropy_stats(Stream& stream, const CrossEntropyStatsArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const CrossEntropyStatsArgs& a) {
    for_each_row(pool, a.logits.rows(), a.logits.cols(), [&](int64_t t) { stats_of_row(a, t); });
  });
}

void cross_entropy_grad(Stream& stream, const CrossEntropyGradArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const CrossEntropyGradArgs& a) {
    add_losses(a);
    if (a.loss_only) return;
    for_each_segment(pool, {a.logits.rows(), a.logits.cols()},
                     [&](const Segment& s) { grad_of_segment(a, s); });
  });
}

void cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& args) {
  run_on(stream, args, [](base::ThreadPool&, const CrossEntropyMergeArgs& a) {
    for (int64_t t = 0; t < a.stats.rows(); ++t) merge_row(a, t);
  });
}

void cross_entropy(Stream& stream, const CrossEntropyArgs& args) {
  cross_entropy_stats(stream, {.logits = args.logits, .labels = args.labels, .stats = args.stats});
  cross_entropy_grad(stream, {.logits = args.logits,
                              .stats = args.stats,
                              .labels = args.labels,
                              .sums = args.sums,
                              .token_losses = args.token_losses,
                              .loss_only = args.loss_only,
                              .scale = args.scale});
}

}  // namespace trireme::kernels::cpu
