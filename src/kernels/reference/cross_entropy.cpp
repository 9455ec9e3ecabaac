// SPDX-License-Identifier: Apache-2.0
// stats = {max, sum of exp(logit - max), logit of the label};  loss = log(sum) + max - target;
// gradient of the summed loss = exp(logit - max) / sum - onehot, zero where the label is negative,
// times `scale`.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"
#include "kernels/step_state.h"

namespace trireme::kernels::reference {
namespace {

void stats_of(const CrossEntropyStatsArgs& args) {
  const Matrix logits = read(args.logits);
  Matrix stats(logits.rows, 3);
  for (int64_t t = 0; t < logits.rows; ++t) {
    double highest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t c = 0; c < logits.cols; ++c) highest = std::max(highest, logits(t, c));
    for (int64_t c = 0; c < logits.cols; ++c) sum += std::exp(logits(t, c) - highest);
    const int64_t label = read_index(args.labels, t);
    const int64_t column = label - args.first_column;
    const bool is_here = label >= 0 && column >= 0 && column < logits.cols;
    stats(t, 0) = highest;
    stats(t, 1) = sum;
    stats(t, 2) = is_here ? logits(t, column) : 0;
  }
  write(args.stats, stats);
}

void grad(const CrossEntropyGradArgs& args) {
  const Matrix stats = read(args.stats);
  Matrix logits = read(args.logits), token_losses(logits.rows, 1);
  const double scale = args.scale ? read(args.scale)(0) : 1;
  double loss = 0;
  int64_t tokens = 0;
  for (int64_t t = 0; t < logits.rows; ++t) {
    const int64_t label = read_index(args.labels, t);
    const double highest = stats(t, 0), sum = stats(t, 1), target = stats(t, 2);
    if (label >= 0) {
      token_losses(t) = std::log(sum) + highest - target;
      loss += token_losses(t);
      tokens += 1;
    }
    for (int64_t c = 0; c < logits.cols; ++c) {
      const double onehot = args.first_column + c == label ? 1 : 0;
      logits(t, c) = label >= 0 ? scale * (std::exp(logits(t, c) - highest) / sum - onehot) : 0;
    }
  }
  auto& sums = *reinterpret_cast<StepSums*>(args.sums.data);
  sums.loss += loss;
  sums.tokens += tokens;
  write(args.token_losses, token_losses);
  if (!args.loss_only) write(args.logits, logits);
}

void merge(const CrossEntropyMergeArgs& args) {
  const Matrix parts = read(args.parts);
  Matrix stats(args.stats.rows(), 3);
  for (int64_t t = 0; t < stats.rows; ++t) {
    stats(t, 0) = -std::numeric_limits<double>::infinity();
    for (int64_t i = t; i < parts.rows; i += stats.rows) {
      stats(t, 0) = std::max(stats(t, 0), parts(i, 0));
    }
    for (int64_t i = t; i < parts.rows; i += stats.rows) {
      stats(t, 1) += parts(i, 1) * std::exp(parts(i, 0) - stats(t, 0));
      stats(t, 2) += parts(i, 2);
    }
  }
  write(args.stats, stats);
}

}  // namespace

void cross_entropy_stats(Stream& stream, const CrossEntropyStatsArgs& args) {
  run_on(stream, [args] { stats_of(args); });
}

void cross_entropy_grad(Stream& stream, const CrossEntropyGradArgs& args) {
  run_on(stream, [args] { grad(args); });
}

void cross_entropy_merge(Stream& stream, const CrossEntropyMergeArgs& args) {
  run_on(stream, [args] { merge(args); });
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

}  // namespace trireme::kernels::reference
