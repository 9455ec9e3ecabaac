// SPDX-License-Identifier: Apache-2.0
// What the router's kernels share. A warp has a token at a time; lane i has its experts i, i + 32,
// .., V in all (the last ones may not exist). The formulas are those of kernels/router_math.h.
#pragma once

#include <limits>

#include "kernels/cuda/values.cuh"
#include "kernels/router_math.h"

namespace trireme::kernels::cuda {

constexpr int router_warps = 8;  // of a block

struct RouterRule {
  int experts, chosen, groups, chosen_groups;
  bool is_softmax, renormalizes;
  float scale;
};

// The scores of a token as functions of its logits: p = exp(z - largest) / sum of these, or a
// sigmoid.
struct Scores {
  float largest, inverse_sum, lse;  // of exp(z), also with sigmoids
  bool is_softmax;

  __device__ float of(float z) const {
    return is_softmax ? expf(z - largest) * inverse_sum : sigmoid_score(z);
  }
};

template <int V>
struct Token {
  float z[V];
  int lane = static_cast<int>(threadIdx.x) % warp_size;

  __device__ int expert(int j) const { return lane + j * warp_size; }
  // Logits of experts that do not exist are minus infinity.
  __device__ void load(const float* logits, int experts) {
#pragma unroll
    for (int j = 0; j < V; ++j) z[j] = expert(j) < experts ? logits[expert(j)] : -INFINITY;
  }
  __device__ Scores scores(bool is_softmax) const {
    float largest = z[0], sum = 0;
#pragma unroll
    for (int j = 1; j < V; ++j) largest = fmaxf(largest, z[j]);
    largest = warp_max(largest);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += expf(z[j] - largest);
    sum = warp_sum(sum);
    return {largest, 1 / sum, largest + logf(sum), is_softmax};
  }
};

// ---- host side

inline RouterRule rule_of(const spec::RouterSpec& rule) {
  return {static_cast<int>(rule.experts),
          static_cast<int>(rule.chosen),
          static_cast<int>(rule.groups),
          static_cast<int>(rule.chosen_groups),
          rule.score == spec::RouterScore::softmax,
          rule.renormalizes,
          rule.scale};
}

// Calls f(std::integral_constant<int, V>) with the smallest V that has room for the experts.
template <typename F>
void with_experts_of_lane(int64_t experts, F&& f) {
  TRIREME_CHECK(experts > 0 && experts <= 1024, "router: {} experts, at most 1024 are supported",
                experts);
  if (experts <= 64) return f(std::integral_constant<int, 2>());
  if (experts <= 128) return f(std::integral_constant<int, 4>());
  if (experts <= 256) return f(std::integral_constant<int, 8>());
  if (experts <= 512) return f(std::integral_constant<int, 16>());
  return f(std::integral_constant<int, 32>());
}

}  // namespace trireme::kernels::cuda
