// SPDX-License-Identifier: Apache-2.0
// Attention over the keys of two parts, from the attention over each: with e = exp(-|difference of
// the two lse|), the part with the higher lse has the weight 1 / (1 + e), the other e / (1 + e),
// and lse = higher + log1p(e). No weight is computed from the rounded sum, and e never overflows.
#include <cmath>
#include <limits>

#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

void merge_head(const AttentionMergeArgs& args, int64_t t, int64_t head, float* buffer) {
  constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
  const int64_t K = args.o.shape[2];
  float& lse = floats_at(args.lse, head)[t];
  const float part_lse = floats_at(args.part_lse, head)[t];
  if (part_lse == minus_infinity) return;
  float* o = floats_at(args.o, t) + head * K;
  const float* part = values_of(args.part, {t, head * K, K}, buffer);
  if (lse == minus_infinity) {
    lse = part_lse;
    std::copy_n(part, K, o);
    return;
  }
  const float e = std::exp(-std::abs(lse - part_lse));
  const float higher = 1 / (1 + e), lower = e / (1 + e);
  const bool part_is_higher = part_lse > lse;
  const float weight = part_is_higher ? lower : higher;
  const float part_weight = part_is_higher ? higher : lower;
  lse = (part_is_higher ? part_lse : lse) + std::log1p(e);
#pragma omp simd
  for (int64_t c = 0; c < K; ++c) o[c] = weight * o[c] + part_weight * part[c];
}

void merge(base::ThreadPool& pool, const AttentionMergeArgs& args) {
  const int64_t H = args.o.shape[1], K = args.o.shape[2];
  for_each_row(pool, args.o.rows(), args.o.cols(), [&](int64_t t) {
    float* buffer = thread_floats<AttentionMergeArgs>(K);
    for (int64_t head = 0; head < H; ++head) merge_head(args, t, head, buffer);
  });
}

}  // namespace

void attention_merge(Stream& stream, const AttentionMergeArgs& args) {
  run_on(stream, args, merge);
}

}  // namespace trireme::kernels::cpu
