// SPDX-License-Identifier: Apache-2.0
// The formulas of the router against a second derivation: plain forwards, written apart from the
// header, with dual numbers that carry a derivative through every operation.
#include "kernels/router_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace trireme::kernels::router_math_test {
namespace {

using spec::RouterScore;
using spec::RouterSpec;

// A value and its derivative.
struct Dual {
  double value = 0, slope = 0;
};
Dual operator+(const Dual& a, const Dual& b) { return {a.value + b.value, a.slope + b.slope}; }
Dual operator*(const Dual& a, const Dual& b) {
  return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
Dual operator/(const Dual& a, const Dual& b) {
  const double q = a.value / b.value;
  return {q, (a.slope - q * b.slope) / b.value};
}
Dual constant(double value) { return {value, 0}; }
Dual exp_of(const Dual& a) { return {std::exp(a.value), std::exp(a.value) * a.slope}; }
Dual log_of(const Dual& a) { return {std::log(a.value), a.slope / a.value}; }

struct Problem {
  RouterSpec rule;
  std::vector<double> z, g;
  std::vector<int32_t> choice;
  std::vector<float> load;
  double aux_scale = 0, z_scale = 0;
};

// sum of g w + aux_scale sum of load/sum(load) q + z_scale/2 lse^2, whose gradient by z is dz.
Dual loss(const Problem& p, size_t variable) {
  const size_t E = p.z.size();
  std::vector<Dual> exponential(E), score(E);
  Dual all = constant(0), scores = constant(0);
  for (size_t e = 0; e < E; ++e) {
    exponential[e] = exp_of({p.z[e], e == variable ? 1.0 : 0.0});
    all = all + exponential[e];
  }
  for (size_t e = 0; e < E; ++e) {
    score[e] = p.rule.score == RouterScore::softmax
                   ? exponential[e] / all
                   : exponential[e] / (constant(1) + exponential[e]);
    scores = scores + score[e];
  }
  Dual chosen = constant(1e-20), total = constant(0);
  for (const int32_t e : p.choice) chosen = chosen + score[static_cast<size_t>(e)];
  for (size_t k = 0; k < p.choice.size(); ++k) {
    Dual weight = score[static_cast<size_t>(p.choice[k])];
    if (p.rule.renormalizes) weight = weight / chosen;
    total = total + constant(p.g[k] * static_cast<double>(p.rule.scale)) * weight;
  }
  if (p.aux_scale != 0) {
    const auto pairs = static_cast<double>(std::accumulate(p.load.begin(), p.load.end(), 0.0F));
    for (size_t e = 0; e < E; ++e) {
      total = total +
              constant(p.aux_scale * static_cast<double>(p.load[e]) / pairs) * (score[e] / scores);
    }
  }
  const Dual lse = log_of(all);
  return total + constant(p.z_scale / 2) * lse * lse;
}

std::vector<double> gradient_of(const Problem& p) {
  std::vector<double> scratch(p.z.size()), dz(p.z.size());
  router_gradient<double>({.rule = p.rule,
                           .z = p.z.data(),
                           .choice = p.choice.data(),
                           .g = p.g.data(),
                           .load = p.aux_scale != 0 ? p.load.data() : nullptr,
                           .aux_scale = p.aux_scale,
                           .z_scale = p.z_scale},
                          scratch.data(), dz.data());
  return dz;
}

std::vector<int32_t> choices_of(const RouterSpec& rule, const std::vector<double>& p,
                                const std::vector<double>& bias = {}) {
  std::vector<double> scratch(static_cast<size_t>(rule.experts + rule.groups));
  std::vector<int32_t> choice(static_cast<size_t>(rule.chosen), -1);
  std::vector<int32_t> groups(static_cast<size_t>(rule.groups));
  choose_experts(rule, p.data(), bias.empty() ? nullptr : bias.data(), choice.data(),
                 scratch.data(), groups.data());
  return choice;
}

Problem random_problem(const RouterSpec& rule, uint64_t seed) {
  const base::RngKey key = base::rng_key(seed, "router");
  uint64_t next = 0;
  const auto random = [&] { return static_cast<double>(base::rng_normal(key, next++, 1)); };
  Problem p{.rule = rule};
  for (int64_t e = 0; e < rule.experts; ++e) p.z.push_back(2 * random());
  for (int64_t k = 0; k < rule.chosen; ++k) p.g.push_back(random());
  for (int64_t e = 0; e < rule.experts; ++e) {
    p.load.push_back(std::floor(std::abs(static_cast<float>(10 * random()))));
  }
  std::vector<double> scores(p.z.size());
  router_scores(rule, p.z.data(), scores.data());
  p.choice = choices_of(rule, scores);
  return p;
}

std::vector<RouterSpec> rules() {
  std::vector<RouterSpec> list;
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
    for (const bool renormalizes : {false, true}) {
      for (const int64_t chosen : {1, 3, 8}) {
        list.push_back({.experts = 8,
                        .chosen = chosen,
                        .score = score,
                        .renormalizes = renormalizes,
                        .scale = 2.5F});
      }
    }
  }
  return list;
}

TEST(RouterMathTest, the_gradient_of_every_kind_is_that_of_dual_numbers) {
  for (const RouterSpec& rule : rules()) {
    for (const auto& [aux_scale, z_scale] :
         {std::array{0.0, 0.0}, std::array{0.7, 0.0}, std::array{0.0, 0.3}, std::array{0.7, 0.3}}) {
      for (uint64_t seed = 1; seed < 6; ++seed) {
        Problem p = random_problem(rule, seed);
        p.aux_scale = aux_scale;
        p.z_scale = z_scale;
        const std::vector<double> dz = gradient_of(p);
        for (size_t e = 0; e < p.z.size(); ++e) {
          EXPECT_NEAR(dz[e], loss(p, e).slope, 1e-10)
              << "expert " << e << " of " << rule.chosen << " chosen, renormalizes "
              << rule.renormalizes << ", seed " << seed;
        }
      }
    }
  }
}

TEST(RouterMathTest, auxiliary_and_z_terms_agree_with_finite_differences) {
  constexpr double step = 1e-5;
  for (const RouterSpec& rule : rules()) {
    Problem p = random_problem(rule, 11);
    p.aux_scale = 0.9;
    p.z_scale = 0.4;
    const std::vector<double> dz = gradient_of(p);
    for (size_t e = 0; e < p.z.size(); ++e) {
      const double z = p.z[e];
      p.z[e] = z + step;
      const double above = loss(p, e).value;
      p.z[e] = z - step;
      const double below = loss(p, e).value;
      p.z[e] = z;
      EXPECT_NEAR(dz[e], (above - below) / (2 * step), 1e-6);
    }
  }
}

// Renormalized weights of a softmax do not depend on the experts that were not chosen.
TEST(RouterMathTest, renormalized_softmax_has_no_gradient_outside_of_the_choice) {
  const RouterSpec rule = {.experts = 8, .chosen = 2, .renormalizes = true};
  const Problem p = random_problem(rule, 3);
  std::vector<float> z(p.z.begin(), p.z.end()), g(p.g.begin(), p.g.end()), scratch(8), dz(8);
  router_gradient<float>({.rule = rule, .z = z.data(), .choice = p.choice.data(), .g = g.data()},
                         scratch.data(), dz.data());
  for (int32_t e = 0; e < 8; ++e) {
    if (std::ranges::count(p.choice, e) == 0) {
      EXPECT_NEAR(dz[static_cast<size_t>(e)], 0, 1e-18F);
    }
  }
}

TEST(RouterMathTest, scores_and_weights) {
  const std::vector<double> z = {1, -2, 0.5, 3};
  std::vector<double> p(4), w(2);
  const std::vector<int32_t> choice = {3, 0};
  RouterSpec rule = {.experts = 4, .chosen = 2, .scale = 2};
  router_scores(rule, z.data(), p.data());
  const double sum = std::exp(1.0) + std::exp(-2.0) + std::exp(0.5) + std::exp(3.0);
  EXPECT_NEAR(p[3], std::exp(3.0) / sum, 1e-15);
  EXPECT_NEAR(softmax_of(z.data(), 4, static_cast<double*>(nullptr)), std::log(sum), 1e-15);
  router_weights(rule, p.data(), choice.data(), w.data());
  EXPECT_NEAR(w[1], 2 * std::exp(1.0) / sum, 1e-15);
  rule.renormalizes = true;
  router_weights(rule, p.data(), choice.data(), w.data());
  EXPECT_NEAR(w[1], 2 * std::exp(1.0) / (std::exp(1.0) + std::exp(3.0)), 1e-15);
  rule.score = RouterScore::sigmoid;
  router_scores(rule, z.data(), p.data());
  EXPECT_NEAR(p[1], 1 / (1 + std::exp(2.0)), 1e-15);
}

TEST(RouterMathTest, the_lowest_index_is_first_among_equals) {
  const RouterSpec rule = {.experts = 6, .chosen = 3};
  EXPECT_EQ(choices_of(rule, {1, 1, 1, 1, 1, 1}), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(choices_of(rule, {1, 2, 3, 2, 3, 2}), (std::vector<int32_t>{2, 4, 1}));
  EXPECT_EQ(choices_of(rule, {1, 2, 3, 2, 3, 2}, {0, 0, 0, 5, 0, 0}),
            (std::vector<int32_t>{3, 2, 4}));
}

TEST(RouterMathTest, groups_are_chosen_by_their_two_best) {
  // Sums of the two best: 0.9 + 0.1, 0.6 + 0.5, 0.4 + 0.4, 0.7 + 0.2.
  const std::vector<double> p = {0.9, 0.0, 0.1, 0.5, 0.6, 0.1, 0.4, 0.4, 0.4, 0.2, 0.7, 0.1};
  RouterSpec rule = {.experts = 12, .chosen = 3, .groups = 4, .chosen_groups = 2};
  EXPECT_EQ(choices_of(rule, p), (std::vector<int32_t>{0, 4, 3}));
  rule.chosen_groups = 1;
  EXPECT_EQ(choices_of(rule, p), (std::vector<int32_t>{4, 3, 5}));
  // Experts of other groups stay excluded if all scores are negative.
  EXPECT_EQ(choices_of(rule, p, std::vector<double>(12, -3)), (std::vector<int32_t>{4, 3, 5}));
  // Groups of one expert, and equal groups.
  rule = {.experts = 4, .chosen = 2, .groups = 4, .chosen_groups = 3};
  EXPECT_EQ(choices_of(rule, {1, 1, 1, 1}), (std::vector<int32_t>{0, 1}));
}

TEST(RouterMathTest, choices_are_valid_whatever_the_scores) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const RouterSpec rule = {.experts = 6, .chosen = 4, .groups = 3, .chosen_groups = 2};
  for (const std::vector<double>& p :
       {std::vector<double>(6, nan), std::vector<double>(6, -infinity),
        std::vector<double>{nan, 1, nan, 2, nan, 3}, std::vector<double>{3, nan, 2, nan, 1, nan}}) {
    std::vector<int32_t> choice = choices_of(rule, p);
    std::ranges::sort(choice);
    EXPECT_GE(choice.front(), 0);
    EXPECT_LT(choice.back(), 6);
    EXPECT_TRUE(std::ranges::adjacent_find(choice) == choice.end());
  }
}

TEST(RouterMathTest, a_bias_moves_against_the_load) {
  EXPECT_EQ(bias_step(0.1F, 4, 3), 0.1F);
  EXPECT_EQ(bias_step(0.1F, 4, 4), 0);
  EXPECT_EQ(bias_step(0.1F, 4, 5), -0.1F);
}

}  // namespace
}  // namespace trireme::kernels::router_math_test
