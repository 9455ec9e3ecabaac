// SPDX-License-Identifier: Apache-2.0
// Scores, choices and weights of tokens. Statistics are summed by warp in the order of its tokens,
// by block in the order of warps, and over blocks in a fixed order, all of which depend on the
// shape only.
#include "kernels/cuda/experts/router_choice.cuh"
#include "kernels/cuda/norm/norm_partials.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int64_t tokens_of_warp = 4;
constexpr int64_t max_blocks = 512;

struct Forward {
  RouterRule rule;
  const float* logits;
  int64_t logits_stride, tokens, tokens_of_warp;
  const float* bias;  // may be null
  int32_t* choice;
  bool is_chosen;
  float* weights;
  float* partials;  // [blocks, 2 E + 2]: counts, probs, lse2, tokens; may be null
  float* load;      // [sequences, E]; may be null
  int64_t first_row, sequence_rows;
};

// As Chooser::choose(), of choices that were made.
template <int V>
__device__ Choice given_choice(const Token<V>& token, const Scores& scores, const float* logits,
                               const int32_t* choice, int count, int (&counts)[V]) {
  Choice mine;
  if (token.lane < count) {
    mine.expert = choice[token.lane];
    mine.score = scores.of(logits[mine.expert]);
  }
  for (int k = 0; k < count; ++k) {
    const int e = __shfl_sync(0xffffffffU, mine.expert, k);
#pragma unroll
    for (int j = 0; j < V; ++j) counts[j] += token.expert(j) == e ? 1 : 0;
  }
  return mine;
}

// Writes the choices of token t and their weights, and counts them.
template <int V>
__device__ void route(const Forward& p, const Token<V>& token, const Scores& scores,
                      const float (&score)[V], int64_t t, float* shared, int (&counts)[V]) {
  const int K = p.rule.chosen;
  const float* logits = p.logits + t * p.logits_stride;
  int32_t* choice = p.choice + t * K;
  float* weights = p.weights + t * K;
  Choice mine;
  float sum = 0;
  if (p.is_chosen) {
    for (int first = 0; first < K; first += warp_size) {
      mine = given_choice(token, scores, logits, choice + first, min(K - first, warp_size), counts);
      if (first + token.lane < K) weights[first + token.lane] = mine.score;
      sum += mine.score;
    }
  } else {
    Chooser<V> chooser(p.rule, p.bias, token, score, shared);
    for (int first = 0; first < K; first += warp_size) {
      mine = chooser.choose(min(K - first, warp_size), score, counts);
      if (first + token.lane < K) {
        choice[first + token.lane] = mine.expert;
        if (K > warp_size) weights[first + token.lane] = mine.score;
      }
      sum += mine.score;
    }
  }
  sum = p.rule.renormalizes ? warp_sum(sum) + static_cast<float>(router_epsilon) : 1;
  for (int k = token.lane; k < K; k += warp_size) {
    weights[k] = p.rule.scale * ((K > warp_size ? weights[k] : mine.score) / sum);
  }
}

// Adds counts of one sequence. Whole numbers: exact in any order.
template <int V>
__device__ void add_load(const Forward& p, const Token<V>& token, int64_t sequence,
                         int (&counts)[V]) {
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const int e = token.expert(j);
    if (e < p.rule.experts && counts[j] > 0) {
      atomicAdd(p.load + sequence * p.rule.experts + e, static_cast<float>(counts[j]));
    }
    counts[j] = 0;
  }
}

// The sum over the warps of a block, in their order, of one value for each expert.
template <int V>
__device__ void sum_warps(const float (&values)[V], const Token<V>& token, int experts,
                          float* shared, float* d) {
  __syncthreads();
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    if (token.expert(j) < experts) shared[warp * experts + token.expert(j)] = values[j];
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += router_warps * warp_size) {
    float sum = 0;
    for (int warp = 0; warp < router_warps; ++warp) sum += shared[warp * experts + e];
    d[e] = sum;
  }
}

template <int V>
__global__ void __launch_bounds__(router_warps* warp_size) forward_kernel(Forward p) {
  extern __shared__ float memory[];  // [router_warps][E + 2 groups]
  const int E = p.rule.experts, warp = static_cast<int>(threadIdx.x) / warp_size;
  float* shared = memory + warp * (E + 2 * p.rule.groups);
  const int64_t number = static_cast<int64_t>(blockIdx.x) * router_warps + warp;
  const int64_t begin = number * p.tokens_of_warp, end = min(p.tokens, begin + p.tokens_of_warp);
  Token<V> token, next;
  if (begin < end) next.load(p.logits + begin * p.logits_stride, E);
  float probs[V] = {}, lse2 = 0;
  int counts[V] = {}, load[V] = {};
  int64_t sequence = 0;
  for (int64_t t = begin; t < end; ++t) {
    const float* logits = p.logits + t * p.logits_stride;
    token = next;
    if (t + 1 < end) next.load(logits + p.logits_stride, E);
    const Scores scores = token.scores(p.rule.is_softmax);
    float score[V];
#pragma unroll
    for (int j = 0; j < V; ++j) score[j] = token.expert(j) < E ? scores.of(token.z[j]) : 0;
    int chosen[V] = {};
    route(p, token, scores, score, t, shared, chosen);
    if (p.load != nullptr) {
      const int64_t here = (p.first_row + t) / p.sequence_rows;
      if (t > begin && here != sequence) add_load(p, token, sequence, load);
      sequence = here;
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      counts[j] += chosen[j];
      load[j] += chosen[j];
    }
    if (p.partials == nullptr) continue;
    float part = 0;
#pragma unroll
    for (int j = 0; j < V; ++j) part += score[j];
    const float share =
        p.rule.is_softmax ? 1 : 1 / (warp_sum(part) + static_cast<float>(router_epsilon));
#pragma unroll
    for (int j = 0; j < V; ++j) probs[j] += score[j] * share;
    lse2 += scores.lse * scores.lse;
  }
  if (p.load != nullptr && begin < end) add_load(p, token, sequence, load);
  if (p.partials == nullptr) return;
  float* d = p.partials + static_cast<int64_t>(blockIdx.x) * (2 * E + 2);
  float exact[V];
#pragma unroll
  for (int j = 0; j < V; ++j) exact[j] = static_cast<float>(counts[j]);
  sum_warps(exact, token, E, memory, d);
  sum_warps(probs, token, E, memory, d + E);
  __syncthreads();
  if (token.lane == 0) memory[warp] = lse2;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < router_warps; ++i) sum += memory[i];
    const int64_t first = static_cast<int64_t>(blockIdx.x) * router_warps * p.tokens_of_warp;
    d[2 * E] = sum;
    d[2 * E + 1] =
        static_cast<float>(max(int64_t{0}, min(p.tokens - first, router_warps * p.tokens_of_warp)));
  }
}

}  // namespace

void router_forward(Stream& stream, const RouterForwardArgs& args) {
  device::CudaStream& cuda = device::cuda_stream(stream);
  const int64_t tokens = args.logits.rows(), E = args.rule.experts;
  if (args.load) {
    device::cuda_check(
        cudaMemsetAsync(args.load.data, 0, static_cast<size_t>(args.load.bytes()), cuda.handle()),
        "router_forward: clearing the load");
  }
  if (tokens == 0) return;
  const int64_t blocks = std::min(max_blocks, ceil_div(tokens, router_warps * tokens_of_warp));
  const base::TensorSpec spec = {{blocks, 2 * E + 2}, base::DType::f32};
  const Tensor partials = args.stats ? device::view_of(cuda.workspace().data, spec) : Tensor{};
  TRIREME_CHECK(!args.stats || base::bytes_of(spec) <= cuda.workspace().bytes(),
                "router_forward: a workspace of {} bytes", cuda.workspace().bytes());
  const Forward p = {.rule = rule_of(args.rule),
                     .logits = data<float>(args.logits),
                     .logits_stride = args.logits.row_stride,
                     .tokens = tokens,
                     .tokens_of_warp = ceil_div(tokens, blocks * router_warps),
                     .bias = args.bias ? data<float>(args.bias) : nullptr,
                     .choice = data<int32_t>(args.choice),
                     .is_chosen = args.is_chosen,
                     .weights = data<float>(args.weights),
                     .partials = args.stats ? data<float>(partials) : nullptr,
                     .load = args.load ? data<float>(args.load) : nullptr,
                     .first_row = args.first_row,
                     .sequence_rows = std::max<int64_t>(1, args.sequence_rows)};
  const auto bytes = static_cast<unsigned>(router_warps * (E + 2 * args.rule.groups) * 4);
  with_experts_of_lane(E, [&](auto width) {
    constexpr int V = decltype(width)::value;
    device::cuda_check(
        cudaFuncSetAttribute(forward_kernel<V>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "router_forward: shared memory");
    forward_kernel<V><<<grid_of(blocks), router_warps * warp_size, bytes, cuda.handle()>>>(p);
  });
  check_launch("router_forward");
  if (args.stats) {
    add_partials(cuda.handle(), partials, {args.stats.slice_rows(0, 2 * E + 2)});
  }
}

}  // namespace trireme::kernels::cuda
