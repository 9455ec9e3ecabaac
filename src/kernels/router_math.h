// SPDX-License-Identifier: Apache-2.0
// The formulas of spec::RouterSpec for one token, for any real type: the CPU table computes in
// float, the reference in double, tests with dual numbers. Device code may call them, too (see
// kernels/step_control.h about constexpr).
//
// Letters: z logits, p scores, q the scores as fractions of their sum, g gradients of weights.
// Arrays have an element for each expert, or for each choice.
#pragma once

#include <cmath>
#include <cstdint>

#include "spec/experts/router.h"

namespace trireme::kernels {

// Is added to sums of scores that are divided by.
constexpr double router_epsilon = 1e-20;

// log(sum over e of exp(z[e])), and, if `p` is not null, p = softmax(z).
template <typename Real>
constexpr Real softmax_of(const Real* z, int64_t experts, Real* p) {
  using std::exp, std::log;
  Real largest = z[0];
  for (int64_t e = 1; e < experts; ++e) {
    if (z[e] > largest) largest = z[e];
  }
  Real sum = Real(0);
  for (int64_t e = 0; e < experts; ++e) {
    const Real value = exp(z[e] - largest);
    if (p != nullptr) p[e] = value;
    sum = sum + value;
  }
  for (int64_t e = 0; p != nullptr && e < experts; ++e) p[e] = p[e] / sum;
  return largest + log(sum);
}

template <typename Real>
constexpr Real sigmoid_score(Real z) {
  using std::exp;
  return Real(1) / (Real(1) + exp(-z));
}

// Scores of a token.
template <typename Real>
constexpr void router_scores(const spec::RouterSpec& rule, const Real* z, Real* p) {
  if (rule.score == spec::RouterScore::softmax) {
    softmax_of(z, rule.experts, p);
    return;
  }
  for (int64_t e = 0; e < rule.experts; ++e) p[e] = sigmoid_score(z[e]);
}

// The divisor of p in q: softmax has a sum of one.
template <typename Real>
constexpr Real score_sum(const spec::RouterSpec& rule, const Real* p) {
  if (rule.score == spec::RouterScore::softmax) return Real(1);
  Real sum = Real(0);
  for (int64_t e = 0; e < rule.experts; ++e) sum = sum + p[e];
  return sum + Real(router_epsilon);
}

// Inserts `index` into best[0, count), which is ordered by scores from the largest on and keeps at
// most `limit` indices; an index follows those of equal score. Returns the new count. A NaN stays
// where it was inserted, so that all indices of a list are valid and differ.
template <typename Real>
constexpr int64_t insert_best(const Real* scores, int32_t index, int32_t* best, int64_t count,
                              int64_t limit) {
  if (count == limit && !(scores[index] > scores[best[count - 1]])) return count;
  int64_t at = count < limit ? count : count - 1;
  for (; at > 0 && scores[index] > scores[best[at - 1]]; --at) best[at] = best[at - 1];
  best[at] = index;
  return count < limit ? count + 1 : count;
}

// The experts that are chosen by p + bias (null: none), best first. Experts outside of the chosen
// groups cannot be chosen, as if their scores were minus infinity. `scores` and `kept` are scratch:
// E + groups elements, and `groups` elements.
template <typename Real>
constexpr void choose_experts(const spec::RouterSpec& rule, const Real* p, const Real* bias,
                              int32_t* choice, Real* scores, int32_t* kept) {
  const int64_t size = rule.experts / rule.groups;
  for (int64_t e = 0; e < rule.experts; ++e) scores[e] = bias != nullptr ? p[e] + bias[e] : p[e];
  int64_t groups = 0;
  Real* group_scores = scores + rule.experts;
  for (int64_t group = 0; group < rule.groups && rule.chosen_groups < rule.groups; ++group) {
    const Real* in_group = scores + group * size;
    int32_t two[2] = {};
    int64_t count = 0;
    for (int64_t i = 0; i < size; ++i) {
      count = insert_best(in_group, static_cast<int32_t>(i), two, count, 2);
    }
    group_scores[group] = count == 2 ? in_group[two[0]] + in_group[two[1]] : in_group[two[0]];
    groups =
        insert_best(group_scores, static_cast<int32_t>(group), kept, groups, rule.chosen_groups);
  }
  // Groups in ascending order, so that equal scores are met in the order of experts.
  int64_t chosen = 0;
  for (int64_t e = 0; e < rule.experts; ++e) {
    bool can_be_chosen = groups == 0;
    for (int64_t i = 0; i < groups; ++i) can_be_chosen = can_be_chosen || kept[i] == e / size;
    if (!can_be_chosen) continue;
    chosen = insert_best(scores, static_cast<int32_t>(e), choice, chosen, rule.chosen);
  }
}

template <typename Real>
constexpr Real chosen_sum(const spec::RouterSpec& rule, const Real* p, const int32_t* choice) {
  Real sum = Real(0);
  for (int64_t k = 0; k < rule.chosen; ++k) sum = sum + p[choice[k]];
  return sum + Real(router_epsilon);
}

template <typename Real>
constexpr void router_weights(const spec::RouterSpec& rule, const Real* p, const int32_t* choice,
                              Real* weights) {
  const Real sum = rule.renormalizes ? chosen_sum(rule, p, choice) : Real(1);
  for (int64_t k = 0; k < rule.chosen; ++k) {
    weights[k] = Real(rule.scale) * (p[choice[k]] / sum);
  }
}

// What the gradient of one token depends on.
template <typename Real>
struct RouterGradient {
  const spec::RouterSpec& rule;
  const Real* z;
  const int32_t* choice;
  const Real* g;                // [K]
  const float* load = nullptr;  // [E] of the token's sequence; null: no auxiliary term
  Real aux_scale = Real(0), z_scale = Real(0);
};

// Adds the gradient of p by the weights to dp, which is zero. Returns sum over e of dp[e] p[e].
template <typename Real>
constexpr Real add_weight_gradient(const RouterGradient<Real>& a, const Real* p, Real* dp) {
  const Real scale = Real(a.rule.scale);
  const Real sum = a.rule.renormalizes ? chosen_sum(a.rule, p, a.choice) : Real(1);
  Real mean = Real(0);
  for (int64_t k = 0; k < a.rule.chosen; ++k) mean = mean + a.g[k] * (p[a.choice[k]] / sum);
  for (int64_t k = 0; k < a.rule.chosen; ++k) {
    dp[a.choice[k]] = a.rule.renormalizes ? scale * (a.g[k] - mean) / sum : scale * a.g[k];
  }
  // With normalized weights the sum of (g - mean) p / sum over the chosen is mean (1 - sum of p /
  // sum): nothing but epsilon is left, and no difference of equal numbers.
  return a.rule.renormalizes ? scale * mean * (Real(router_epsilon) / sum) : scale * mean;
}

// Adds the gradient of p by the auxiliary term to dp. Returns sum over e of what was added times p.
template <typename Real>
constexpr Real add_load_gradient(const RouterGradient<Real>& a, const Real* p, Real* dp) {
  Real total = Real(0);
  for (int64_t e = 0; e < a.rule.experts; ++e) total = total + Real(a.load[e]);
  const Real factor = a.aux_scale / total;
  const Real sum = score_sum(a.rule, p);
  Real mean = Real(0);
  for (int64_t e = 0; e < a.rule.experts; ++e)
    mean = mean + factor * Real(a.load[e]) * (p[e] / sum);
  const bool is_softmax = a.rule.score == spec::RouterScore::softmax;
  for (int64_t e = 0; e < a.rule.experts; ++e) {
    const Real dq = factor * Real(a.load[e]);
    dp[e] = dp[e] + (is_softmax ? dq : (dq - mean) / sum);
  }
  return mean;
}

// Writes dz [E]. `p` is scratch of E elements.
//   softmax: dz = p (dp - sum of dp p);  sigmoid: dz = p (1 - p) dp;  both: + z_scale lse
//   softmax(z).
template <typename Real>
constexpr void router_gradient(const RouterGradient<Real>& a, Real* p, Real* dz) {
  using std::exp;
  router_scores(a.rule, a.z, p);
  for (int64_t e = 0; e < a.rule.experts; ++e) dz[e] = Real(0);
  Real mean = add_weight_gradient(a, p, dz);
  if (a.load != nullptr) mean = mean + add_load_gradient(a, p, dz);
  for (int64_t e = 0; e < a.rule.experts; ++e) {
    dz[e] = a.rule.score == spec::RouterScore::softmax ? p[e] * (dz[e] - mean)
                                                       : p[e] * sigmoid_score(-a.z[e]) * dz[e];
  }
  if (!(a.z_scale != Real(0))) return;
  const Real lse = softmax_of(a.z, a.rule.experts, static_cast<Real*>(nullptr));
  for (int64_t e = 0; e < a.rule.experts; ++e) {
    dz[e] = dz[e] + a.z_scale * lse * exp(a.z[e] - lse);
  }
}

// The most rows of one of `blocks` blocks of neighbouring experts, at least `fill`.
constexpr float fullest_block(const int32_t* counts, int64_t experts, int64_t blocks, float fill) {
  const int64_t size = experts / blocks;
  for (int64_t block = 0; block < blocks; ++block) {
    int64_t rows = 0;
    for (int64_t e = 0; e < size; ++e) rows += counts[block * size + e];
    if (static_cast<float>(rows) > fill) fill = static_cast<float>(rows);
  }
  return fill;
}

// The change of a bias: rate * sign(mean - count).
constexpr float bias_step(float rate, double mean, float count) {
  const auto pairs = static_cast<double>(count);
  return pairs < mean ? rate : pairs > mean ? -rate : 0;
}

}  // namespace trireme::kernels
