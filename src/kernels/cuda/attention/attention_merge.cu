// SPDX-License-Identifier: Apache-2.0
// Merges attention over disjoint sets of keys, in fp32. A warp takes one head of one token.
#include <math_constants.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int merge_threads = 256;

struct MergeParams {
  InRows part;
  OutRows o;
  const float* part_lse;
  float* lse;
  int64_t tokens, heads, K;
};

__global__ void __launch_bounds__(merge_threads) merge_kernel(MergeParams p) {
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (merge_threads / warp_size) + threadIdx.x / warp_size;
  if (row >= p.tokens * p.heads) return;
  const int64_t t = row / p.heads, head = row % p.heads, at = head * p.tokens + t;
  const float a = p.lse[at], b = p.part_lse[at];
  if (b == -CUDART_INF_F) return;  // nothing to add
  const float high = fmaxf(a, b), low = fminf(a, b);
  const float merged = high + log1pf(expf(low - high));
  const float factor = expf(a - merged), part_factor = expf(b - merged);
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  float* o = p.o.row<float>(t) + head * p.K;
  for (int64_t c = lane; c < p.K; c += warp_size) {
    const float x = p.part.get(t, head * p.K + c) * part_factor;
    o[c] = a == -CUDART_INF_F ? x : o[c] * factor + x;
  }
  __syncwarp();  // all lanes have read the old value
  if (lane == 0) p.lse[at] = merged;
}

}  // namespace

void attention_merge(Stream& stream, const AttentionMergeArgs& args) {
  const MergeParams params = {.part = in_rows(args.part),
                              .o = out_rows(args.o),
                              .part_lse = data<float>(args.part_lse),
                              .lse = data<float>(args.lse),
                              .tokens = args.part.rows(),
                              .heads = args.part.shape[1],
                              .K = args.part.shape[2]};
  if (params.tokens == 0) return;
  const int64_t blocks = ceil_div(params.tokens * params.heads, merge_threads / warp_size);
  merge_kernel<<<grid_of(blocks), merge_threads, 0, device::cuda_stream(stream).handle()>>>(params);
  check_launch("attention_merge");
}

}  // namespace trireme::kernels::cuda
