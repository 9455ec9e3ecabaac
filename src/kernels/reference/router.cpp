// SPDX-License-Identifier: Apache-2.0
// The router: the formulas of router_math.h in double, token by token.
#include <vector>

#include "kernels/reference/matrix.h"
#include "kernels/reference/table_ops.h"
#include "kernels/router_math.h"
#include "kernels/step_state.h"

namespace trireme::kernels::reference {
namespace {

using spec::RouterStats;

int32_t* indices_of(const Tensor& t) { return reinterpret_cast<int32_t*>(t.data); }

// The values of row `row`.
const double* row_of(const Matrix& m, int64_t row) { return m.values.data() + row * m.cols; }

// Statistics of the tokens and the pairs of each sequence, from all scores and choices.
void count(const RouterForwardArgs& a, const Matrix& logits, const Matrix& scores) {
  const int64_t T = logits.rows, E = a.rule.experts, K = a.rule.chosen;
  const RouterStats at = {E};
  Matrix stats = read(a.stats), load = a.load ? Matrix(a.load.rows(), E) : Matrix();
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t k = 0; k < K; ++k) {
      const int32_t e = indices_of(a.choice)[t * K + k];
      if (a.stats) stats(at.counts() + e) += 1;
      if (a.load) load((a.first_row + t) / a.sequence_rows, e) += 1;
    }
    if (!a.stats) continue;
    const double* p = row_of(scores, t);
    const double sum = score_sum(a.rule, p);
    for (int64_t e = 0; e < E; ++e) stats(at.probs() + e) += p[e] / sum;
    const double lse = softmax_of(row_of(logits, t), E, static_cast<double*>(nullptr));
    stats(at.lse2()) += lse * lse;
    stats(at.tokens()) += 1;
  }
  write(a.stats, stats);
  write(a.load, load);
}

void forward(const RouterForwardArgs& a) {
  const int64_t T = a.logits.rows(), E = a.rule.experts, K = a.rule.chosen;
  const Matrix logits = read(a.logits), bias = read(a.bias);
  Matrix scores(T, E), weights(T, K);
  std::vector<double> scratch(static_cast<size_t>(E + a.rule.groups));
  std::vector<int32_t> groups(static_cast<size_t>(a.rule.groups));
  for (int64_t t = 0; t < T; ++t) {
    double* p = scores.values.data() + t * E;
    int32_t* choice = indices_of(a.choice) + t * K;
    router_scores(a.rule, row_of(logits, t), p);
    if (!a.is_chosen) {
      choose_experts(a.rule, p, a.bias ? bias.values.data() : nullptr, choice, scratch.data(),
                     groups.data());
    }
    router_weights(a.rule, p, choice, weights.values.data() + t * K);
  }
  write(a.weights, weights);
  count(a, logits, scores);
}

void backward(const RouterBackwardArgs& a) {
  const int64_t T = a.logits.rows(), E = a.rule.experts, K = a.rule.chosen;
  const Matrix logits = read(a.logits), row_grads = read(a.row_grads);
  Matrix dlogits(T, E);
  const double scale = a.scale ? read(a.scale)(0) : 1;
  std::vector<double> p(static_cast<size_t>(E)), g(static_cast<size_t>(K));
  const auto* choice = reinterpret_cast<const int32_t*>(a.choice.data);
  const auto* place = reinterpret_cast<const int32_t*>(a.place.data);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t k = 0; k < K; ++k) {
      const int32_t row = place[t * K + k];
      g[static_cast<size_t>(k)] = row < 0 ? 0 : row_grads(row);
    }
    const bool has_terms = a.labels && reinterpret_cast<const int32_t*>(a.labels.data)[t] >= 0;
    const float* load = nullptr;
    if (a.load) {
      load = reinterpret_cast<const float*>(a.load.data) + (a.first_row + t) / a.sequence_rows * E;
    }
    router_gradient<double>({.rule = a.rule,
                             .z = row_of(logits, t),
                             .choice = choice + t * K,
                             .g = g.data(),
                             .load = has_terms ? load : nullptr,
                             .aux_scale = has_terms ? scale * static_cast<double>(a.aux_scale) : 0,
                             .z_scale = has_terms ? scale * static_cast<double>(a.z_scale) : 0},
                            p.data(), dlogits.values.data() + t * E);
  }
  write(a.dlogits, dlogits);
}

}  // namespace

void router_forward(Stream& stream, const RouterForwardArgs& args) {
  run_on(stream, [args] { forward(args); });
}

void router_backward(Stream& stream, const RouterBackwardArgs& args) {
  run_on(stream, [args] { backward(args); });
}

void router_bias(Stream& stream, const RouterBiasArgs& args) {
  run_on(stream, [args] {
    if (reinterpret_cast<const StepState*>(args.state.data)->skip != 0) return;
    Matrix bias = read(args.bias);
    const Matrix stats = read(args.stats);
    const int64_t counts = RouterStats{bias.rows}.counts();
    double mean = 0;
    for (int64_t e = 0; e < bias.rows; ++e) mean += stats(counts + e);
    mean /= static_cast<double>(bias.rows);
    for (int64_t e = 0; e < bias.rows; ++e) {
      const auto found = static_cast<float>(stats(counts + e));
      bias(e) += static_cast<double>(bias_step(args.rate, mean, found));
    }
    write(args.bias, bias);
  });
}

void router_overflow(Stream& stream, const RouterOverflowArgs& args) {
  run_on(stream, [args] {
    auto* sums = reinterpret_cast<StepSums*>(args.sums.data);
    const auto* stats = reinterpret_cast<const float*>(args.stats.data);
    sums->overflow += static_cast<int64_t>(stats[RouterStats{args.experts}.overflow()]);
  });
}

void router_fill(Stream& stream, const RouterFillArgs& args) {
  run_on(stream, [args] {
    const auto* counts = reinterpret_cast<const int32_t*>(args.counts.data);
    auto* fill = reinterpret_cast<float*>(args.fill.data);
    *fill = fullest_block(counts, args.counts.rows(), args.blocks, *fill);
  });
}

}  // namespace trireme::kernels::reference
