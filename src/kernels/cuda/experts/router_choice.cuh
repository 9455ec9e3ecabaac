// SPDX-License-Identifier: Apache-2.0
// The choice of experts by a warp. The best expert is found K times: two reductions over lanes give
// the largest score and the lowest index that has it.
#pragma once

#include "kernels/cuda/experts/router.cuh"

namespace trireme::kernels::cuda {

// Unsigned numbers in the order of floats, above 0, which stands for an expert that is not
// available.
__device__ inline uint32_t key_of(float score) {
  const uint32_t bits = __float_as_uint(score);
  return max(1U, (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U);
}

// The largest key of a warp's lanes and the lowest index with it.
struct Best {
  uint32_t key;
  int index;
};
__device__ inline Best best_of_warp(const Best& of_lane) {
  const uint32_t key = __reduce_max_sync(0xffffffffU, of_lane.key);
  const int candidate = of_lane.key == key ? of_lane.index : INT32_MAX;
  return {key, __reduce_min_sync(0xffffffffU, candidate)};
}

template <int V>
__device__ Best best_of_lane(const uint32_t (&keys)[V], int lane) {
  Best best = {keys[0], lane};
#pragma unroll
  for (int j = 1; j < V; ++j) {
    if (keys[j] > best.key) best = {keys[j], lane + j * warp_size};
  }
  return best;
}

// Sets the keys of experts outside of the best groups to 0. `shared`: E + 2 groups words of this
// warp.
template <int V>
__device__ void keep_best_groups(const RouterRule& rule, const float (&scores)[V],
                                 uint32_t (&keys)[V], float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int size = rule.experts / rule.groups;
  auto* group_keys = reinterpret_cast<uint32_t*>(shared + rule.experts);
  auto* is_kept = group_keys + rule.groups;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    if (lane + j * warp_size < rule.experts) shared[lane + j * warp_size] = scores[j];
  }
  __syncwarp();
  for (int group = lane; group < rule.groups; group += warp_size) {
    const float* in_group = shared + group * size;
    float first = in_group[0], second = -INFINITY;
    for (int i = 1; i < size; ++i) {
      const float score = in_group[i];
      second = fmaxf(second, fminf(first, score));
      first = fmaxf(first, score);
    }
    group_keys[group] = key_of(size > 1 ? first + second : first);
    is_kept[group] = 0;
  }
  __syncwarp();
  for (int i = 0; i < rule.chosen_groups; ++i) {
    Best best = {0, lane < rule.groups ? lane : 0};
    for (int group = lane; group < rule.groups; group += warp_size) {
      if (group_keys[group] > best.key) best = {group_keys[group], group};
    }
    best = best_of_warp(best);
    __syncwarp();
    if (lane == 0) {
      group_keys[best.index] = 0;
      is_kept[best.index] = 1;
    }
    __syncwarp();
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const int e = lane + j * warp_size;
    if (e < rule.experts && is_kept[e / size] == 0) keys[j] = 0;
  }
  __syncwarp();
}

// The choices of a token, in parts of 32, of which a lane has one: the expert and its score.
struct Choice {
  int expert = -1;
  float score = 0;
};

// Finds the best experts one after the other.
template <int V>
class Chooser {
 public:
  // `bias` may be null.
  __device__ Chooser(const RouterRule& rule, const float* bias, const Token<V>& token,
                     const float (&scores)[V], float* shared)
      : token_(token) {
    float biased[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int e = token.expert(j);
      const bool is_there = e < rule.experts;
      biased[j] = scores[j] + (bias != nullptr && is_there ? bias[e] : 0);
      keys_[j] = is_there ? key_of(biased[j]) : 0;
    }
    if (rule.chosen_groups < rule.groups) keep_best_groups(rule, biased, keys_, shared);
    own_ = best_of_lane(keys_, token.lane);
  }
  // The next `count` choices, at most 32. Counts them.
  __device__ Choice choose(int count, const float (&scores)[V], int (&counts)[V]) {
    Choice mine;
    for (int k = 0; k < count; ++k) {
      const int e = best_of_warp(own_).index, owner = e % warp_size;
      float score = 0;
      if (owner == token_.lane) {
#pragma unroll
        for (int j = 0; j < V; ++j) {
          if (token_.expert(j) != e) continue;
          keys_[j] = 0;
          score = scores[j];
          ++counts[j];
        }
        own_ = best_of_lane(keys_, token_.lane);
      }
      score = __shfl_sync(0xffffffffU, score, owner);
      if (token_.lane == k) mine = {e, score};
    }
    return mine;
  }

 private:
  const Token<V>& token_;
  uint32_t keys_[V];
  Best own_;
};

}  // namespace trireme::kernels::cuda
