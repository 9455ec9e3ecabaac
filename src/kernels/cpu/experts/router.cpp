// SPDX-License-Identifier: Apache-2.0
// The router: the formulas of kernels/router_math.h in fp32, token by token. Sums over tokens are
// in fp64, in blocks of `block_tokens`, which are then added in order.
#include "kernels/router_math.h"

#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cpu {
namespace {

using spec::RouterStats;

constexpr int64_t block_tokens = 128;

struct TokenScores;  // tag of thread_floats()

const int32_t* choices_at(const ConstTensor& choice, int64_t token) {
  return reinterpret_cast<const int32_t*>(choice.data) + token * choice.row_stride;
}

// Sums over tokens: q of every expert, then the squares of lse.
void add_token(const RouterForwardArgs& a, const float* z, const float* p, double* sums) {
  const int64_t E = a.rule.experts;
  const float total = score_sum(a.rule, p);
  for (int64_t e = 0; e < E; ++e) sums[e] += static_cast<double>(p[e] / total);
  const auto lse = static_cast<double>(softmax_of(z, E, static_cast<float*>(nullptr)));
  sums[E] += lse * lse;
}

// Scores, choices and weights of tokens [begin, end).
void route_tokens(const RouterForwardArgs& a, int64_t begin, int64_t end, double* sums) {
  const int64_t E = a.rule.experts, K = a.rule.chosen;
  float* p = thread_floats<TokenScores>(2 * E + a.rule.groups);
  thread_local std::vector<int32_t> groups;
  groups.resize(static_cast<size_t>(a.rule.groups));
  for (int64_t t = begin; t < end; ++t) {
    const float* z = floats_at(a.logits, t);
    int32_t* choice = reinterpret_cast<int32_t*>(a.choice.data) + t * K;
    router_scores(a.rule, z, p);
    if (!a.is_chosen) {
      choose_experts(a.rule, p, a.bias ? floats_at(a.bias, 0) : nullptr, choice, p + E,
                     groups.data());
    }
    router_weights(a.rule, p, choice, floats_at(a.weights, t));
    if (a.stats) add_token(a, z, p, sums);
  }
}

// The pairs of experts, in all and by sequence.
void count_pairs(const RouterForwardArgs& a) {
  const int64_t T = a.logits.rows(), E = a.rule.experts, K = a.rule.chosen;
  float* counts = a.stats ? floats_at(a.stats, 0) + RouterStats{E}.counts() : nullptr;
  if (a.load) std::fill_n(floats_at(a.load, 0), a.load.elements(), 0.0F);
  if (!a.stats && !a.load) return;
  for (int64_t t = 0; t < T; ++t) {
    float* load = a.load ? floats_at(a.load, (a.first_row + t) / a.sequence_rows) : nullptr;
    const int32_t* choice = choices_at(a.choice, t);
    for (int64_t k = 0; k < K; ++k) {
      if (counts != nullptr) counts[choice[k]] += 1;
      if (load != nullptr) load[choice[k]] += 1;
    }
  }
}

void route(base::ThreadPool& pool, const RouterForwardArgs& a) {
  const int64_t T = a.logits.rows(), E = a.rule.experts;
  const int64_t blocks = divide_up(T, block_tokens);
  thread_local std::vector<double> memory;
  memory.assign(static_cast<size_t>(a.stats ? blocks * (E + 1) : 0), 0);
  double* sums = memory.data();
  pool.for_each(blocks, [&](int64_t block) {
    route_tokens(a, block * block_tokens, std::min(T, (block + 1) * block_tokens),
                 a.stats ? sums + block * (E + 1) : nullptr);
  });
  count_pairs(a);
  if (!a.stats) return;
  float* stats = floats_at(a.stats, 0);
  const RouterStats at = {E};
  for (int64_t i = 0; i <= E; ++i) {
    double total = 0;
    for (int64_t block = 0; block < blocks; ++block) total += sums[block * (E + 1) + i];
    float& stat = stats[i < E ? at.probs() + i : at.lse2()];
    stat = static_cast<float>(static_cast<double>(stat) + total);
  }
  stats[at.tokens()] += static_cast<float>(T);
}

void gradient(base::ThreadPool& pool, const RouterBackwardArgs& a) {
  const int64_t T = a.logits.rows(), E = a.rule.experts, K = a.rule.chosen;
  const float scale = a.scale ? *floats_at(a.scale, 0) : 1;
  pool.for_each(divide_up(T, block_tokens), [&](int64_t block) {
    float* p = thread_floats<TokenScores>(2 * E + K);
    float* dz = p + E;
    float* g = dz + E;
    const int64_t end = std::min(T, (block + 1) * block_tokens);
    for (int64_t t = block * block_tokens; t < end; ++t) {
      const int32_t* place = choices_at(a.place, t);
      for (int64_t k = 0; k < K; ++k) g[k] = place[k] < 0 ? 0 : *floats_at(a.row_grads, place[k]);
      const bool has_terms = a.labels && reinterpret_cast<const int32_t*>(a.labels.data)[t] >= 0;
      const float* load = nullptr;
      if (a.load) load = floats_at(a.load, (a.first_row + t) / a.sequence_rows);
      router_gradient<float>({.rule = a.rule,
                              .z = floats_at(a.logits, t),
                              .choice = choices_at(a.choice, t),
                              .g = g,
                              .load = has_terms ? load : nullptr,
                              .aux_scale = has_terms ? scale * a.aux_scale : 0,
                              .z_scale = has_terms ? scale * a.z_scale : 0},
                             p, dz);
      store(a.dlogits, {t, 0, E}, dz);
    }
  });
}

void update_bias(base::ThreadPool& /*pool*/, const RouterBiasArgs& a) {
  if (reinterpret_cast<const StepState*>(a.state.data)->skip != 0) return;
  const int64_t E = a.bias.rows();
  const float* counts = floats_at(a.stats, 0) + RouterStats{E}.counts();
  float* bias = floats_at(a.bias, 0);
  double mean = 0;
  for (int64_t e = 0; e < E; ++e) mean += static_cast<double>(counts[e]);
  mean /= static_cast<double>(E);
  for (int64_t e = 0; e < E; ++e) bias[e] += bias_step(a.rate, mean, counts[e]);
}

void add_overflow(base::ThreadPool& /*pool*/, const RouterOverflowArgs& a) {
  const float overflow = floats_at(a.stats, 0)[RouterStats{a.experts}.overflow()];
  reinterpret_cast<StepSums*>(a.sums.data)->overflow += static_cast<int64_t>(overflow);
}

void find_fill(base::ThreadPool& /*pool*/, const RouterFillArgs& a) {
  float& fill = *floats_at(a.fill, 0);
  fill = fullest_block(choices_at(a.counts, 0), a.counts.rows(), a.blocks, fill);
}

}  // namespace

void router_forward(Stream& stream, const RouterForwardArgs& args) { run_on(stream, args, route); }
void router_backward(Stream& stream, const RouterBackwardArgs& args) {
  run_on(stream, args, gradient);
}
void router_bias(Stream& stream, const RouterBiasArgs& args) { run_on(stream, args, update_bias); }
void router_overflow(Stream& stream, const RouterOverflowArgs& args) {
  run_on(stream, args, add_overflow);
}
void router_fill(Stream& stream, const RouterFillArgs& args) { run_on(stream, args, find_fill); }

}  // namespace trireme::kernels::cpu
