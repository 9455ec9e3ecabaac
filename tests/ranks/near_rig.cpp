// SPDX-License-Identifier: Apache-2.0
#include "tests/ranks/near_rig.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace trireme::tests {
namespace {

constexpr int near_steps = 3;
constexpr double init_std = 0.02;

// Returns the norm of a - b relative to that of b, to which `least` is added in quadrature for
// every element: a lower bound of the denominator.
double distance(const std::vector<float>& a, const std::vector<float>& b, double least = 0) {
  double squares = 0, size = least * least * static_cast<double>(b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(squares) / std::max(std::sqrt(size), 1e-30);
}

Results one_rank(Layout layout) {
  static std::map<std::string, Results> known;
  layout.dp = layout.zero = layout.tp = layout.cp = layout.pp = layout.ep = layout.etp = 1;
  layout.chunks = 0;
  layout.cut.clear();
  layout.keep_params = false;
  layout.stage = 0;
  layout.sequence_parallel = false;
  layout.recompute = spec::Recompute::none;
  layout.ffn_rows = 0;
  layout.streams = device::StreamMode::inline_calls;
  const auto [found, is_new] = known.try_emplace(bits_key(layout));
  if (is_new) found->second = results_of(layout, near_steps);
  return found->second;
}

}  // namespace

// Adam divides by the size of a gradient, so a gradient that is zero except for rounding (key
// biases) would move weights as far as any other; a large epsilon prevents this.
void expect_near_one_rank(Layout layout, double bound, double loss_bound) {
  layout.adam_eps = 0.1F;
  const Results expected = one_rank(layout);
  const Results found = results_of(layout, near_steps);
  double largest = 0;
  for (const auto& [name, grads] : expected.grads) {
    for (const float g : grads) largest = std::max(largest, std::abs(static_cast<double>(g)));
  }
  ASSERT_EQ(found.grads.size(), expected.grads.size());
  for (const auto& [name, grads] : expected.grads) {
    ASSERT_EQ(found.grads.at(name).size(), grads.size()) << name;
    // Gradients that are zero in theory (key biases) are rounding errors of larger ones.
    double size = 0;
    for (const float g : grads) size = std::max(size, std::abs(static_cast<double>(g)));
    if (size > 1e-5 * largest) {
      EXPECT_LT(distance(found.grads.at(name), grads), bound) << name << ", " << to_string(layout);
    }
    EXPECT_LT(distance(found.weights.at(name), expected.weights.at(name), init_std), bound)
        << name << ", " << to_string(layout);
  }
  EXPECT_NEAR(found.losses[0] / expected.losses[0], 1, loss_bound) << to_string(layout);
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i] / expected.losses[i], 1, bound) << i << ", " << to_string(layout);
    EXPECT_NEAR(static_cast<double>(found.norms[i] / expected.norms[i]), 1, bound)
        << i << ", " << to_string(layout);
  }
}

}  // namespace trireme::tests
