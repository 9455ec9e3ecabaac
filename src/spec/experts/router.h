// SPDX-License-Identifier: Apache-2.0
// RouterSpec: how a mixture-of-experts layer chooses experts for a token, and what a step counts
// about these choices. Planner, layers and kernels read the same description.
#pragma once

#include <cstdint>

#include "base/shape.h"

namespace trireme::spec {

enum class RouterScore : uint8_t { softmax, sigmoid };

// With z the logits of a token: p = softmax(z) or sigmoid(z). The `chosen` experts are those with
// the largest p (+ bias), the lowest index first among equals. With groups, experts are divided
// into `groups` groups of neighbours; a group's score is the sum of its two largest p + bias, and
// only experts of the `chosen_groups` best groups can be chosen. The weight of a chosen expert i is
// scale * p_i, or with `renormalizes` scale * p_i / (sum of the chosen p + 1e-20).
struct RouterSpec {
  int64_t experts = 0;
  int64_t chosen = 0;
  RouterScore score = RouterScore::softmax;
  bool renormalizes = false;
  int64_t groups = 1, chosen_groups = 1;
  float scale = 1;
  bool has_bias = false;  // choices by p + bias, where bias is state that no gradient changes
  bool operator==(const RouterSpec&) const = default;
};

// Sums of a step in one layer, f32. They are exact up to 2^24.
//   counts[e]  pairs (token, chosen expert e), dropped or not
//   probs[e]   sum over tokens of p_e, where sigmoid scores are divided by their sum
//   lse2       sum over tokens of the square of log(sum over e of exp(z_e))
//   tokens     rows of the router
//   dropped    pairs without a row
//   lost       tokens without any row
//   overflow   pairs that exceeded the row budget (those dropped for an expert's capacity are not
//              among them)
struct RouterStats {
  int64_t experts = 0;
  int64_t counts() const { return 0; }
  int64_t probs() const { return experts; }
  int64_t lse2() const { return 2 * experts; }
  int64_t tokens() const { return 2 * experts + 1; }
  int64_t dropped() const { return 2 * experts + 2; }
  int64_t lost() const { return 2 * experts + 3; }
  int64_t overflow() const { return 2 * experts + 4; }
  int64_t size() const { return 2 * experts + 8; }
};

}  // namespace trireme::spec
