// SPDX-License-Identifier: Apache-2.0
// The gradient of the router's logits, and the update of its bias. A warp has a token at a time.
#include "kernels/cuda/experts/router.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cuda {
namespace {

struct Backward {
  RouterRule rule;
  const float* logits;
  int64_t logits_stride, tokens;
  const int32_t *choice, *place;
  const float *row_grads, *load;  // load may be null
  const int32_t* labels;          // null: no row has balance terms
  int64_t first_row, sequence_rows;
  float aux_scale, z_scale;
  const float* scale;  // of both terms; null: 1
  OutRows dlogits;
};

__device__ float scale_of(const Backward& p) { return p.scale == nullptr ? 1 : *p.scale; }

// Writes the gradient of p by the weights of the choices to `dp` [E], which is zero. Returns the
// sum of dp p: see add_weight_gradient() of router_math.h.
__device__ float add_weights(const Backward& p, const Scores& scores, const float* logits,
                             int64_t t, float* dp) {
  constexpr auto epsilon = static_cast<float>(router_epsilon);
  const int lane = static_cast<int>(threadIdx.x) % warp_size, K = p.rule.chosen;
  const int32_t *choice = p.choice + t * K, *place = p.place + t * K;
  const auto grad_of = [&](int k) { return place[k] < 0 ? 0.0F : p.row_grads[place[k]]; };
  float sum = 1, mean = 0;
  if (p.rule.renormalizes) {
    float part = 0;
    for (int k = lane; k < K; k += warp_size) part += scores.of(logits[choice[k]]);
    sum = warp_sum(part) + epsilon;
  }
  for (int k = lane; k < K; k += warp_size) {
    mean += grad_of(k) * (scores.of(logits[choice[k]]) / sum);
  }
  mean = warp_sum(mean);
  const float scale = p.rule.scale;
  for (int k = lane; k < K; k += warp_size) {
    dp[choice[k]] = p.rule.renormalizes ? scale * (grad_of(k) - mean) / sum : scale * grad_of(k);
  }
  return p.rule.renormalizes ? scale * mean * (epsilon / sum) : scale * mean;
}

// Adds the gradient of p by the auxiliary term. Returns the sum of what was added times p.
template <int V>
__device__ float add_loads(const Backward& p, const Token<V>& token, const float (&scores)[V],
                           int64_t t, float (&dp)[V]) {
  const float* load = p.load + (p.first_row + t) / p.sequence_rows * p.rule.experts;
  float of_lane[V], total = 0, sum = 0;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    of_lane[j] = token.expert(j) < p.rule.experts ? load[token.expert(j)] : 0;
    total += of_lane[j];
    sum += scores[j];
  }
  const float factor = p.aux_scale * scale_of(p) / warp_sum(total);
  sum = p.rule.is_softmax ? 1 : warp_sum(sum) + static_cast<float>(router_epsilon);
  float mean = 0;
#pragma unroll
  for (int j = 0; j < V; ++j) mean += factor * of_lane[j] * (scores[j] / sum);
  mean = warp_sum(mean);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const float dq = factor * of_lane[j];
    dp[j] += p.rule.is_softmax ? dq : (dq - mean) / sum;
  }
  return mean;
}

template <int V>
__global__ void __launch_bounds__(router_warps* warp_size) backward_kernel(Backward p) {
  extern __shared__ float memory[];  // [router_warps][E]
  const int E = p.rule.experts, warp = static_cast<int>(threadIdx.x) / warp_size;
  float* shared = memory + warp * E;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * router_warps + warp;
  if (t >= p.tokens) return;
  const float* logits = p.logits + t * p.logits_stride;
  Token<V> token;
  token.load(logits, E);
  const Scores scores = token.scores(p.rule.is_softmax);
  for (int e = token.lane; e < E; e += warp_size) shared[e] = 0;
  __syncwarp();
  float mean = add_weights(p, scores, logits, t, shared);
  __syncwarp();
  float score[V], dp[V];
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const bool is_there = token.expert(j) < E;
    score[j] = is_there ? scores.of(token.z[j]) : 0;
    dp[j] = is_there ? shared[token.expert(j)] : 0;
  }
  const bool has_terms = p.labels != nullptr && p.labels[t] >= 0;
  if (has_terms && p.load != nullptr) mean += add_loads(p, token, score, t, dp);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    float dz = p.rule.is_softmax ? score[j] * (dp[j] - mean)
                                 : score[j] * sigmoid_score(-token.z[j]) * dp[j];
    if (has_terms && p.z_scale != 0) {
      dz += p.z_scale * scale_of(p) * scores.lse * expf(token.z[j] - scores.lse);
    }
    if (token.expert(j) < E) p.dlogits.set(t, token.expert(j), dz);
  }
}

constexpr int bias_threads = 256;

__global__ void __launch_bounds__(bias_threads)
    bias_kernel(const float* counts, const StepState* state, float* bias, int experts, float rate) {
  __shared__ double sums[bias_threads / warp_size];
  if (state->skip != 0) return;
  double sum = 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += bias_threads) {
    sum += static_cast<double>(counts[e]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % warp_size == 0) sums[threadIdx.x / warp_size] = sum;
  __syncthreads();
  double mean = 0;
  for (const double part : sums) mean += part;
  mean /= experts;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += bias_threads) {
    bias[e] += bias_step(rate, mean, counts[e]);
  }
}

}  // namespace

void router_backward(Stream& stream, const RouterBackwardArgs& args) {
  const int64_t tokens = args.logits.rows(), E = args.rule.experts;
  if (tokens == 0) return;
  const Backward p = {.rule = rule_of(args.rule),
                      .logits = data<float>(args.logits),
                      .logits_stride = args.logits.row_stride,
                      .tokens = tokens,
                      .choice = data<int32_t>(args.choice),
                      .place = data<int32_t>(args.place),
                      .row_grads = data<float>(args.row_grads),
                      .load = args.load ? data<float>(args.load) : nullptr,
                      .labels = args.labels ? data<int32_t>(args.labels) : nullptr,
                      .first_row = args.first_row,
                      .sequence_rows = std::max<int64_t>(1, args.sequence_rows),
                      .aux_scale = args.aux_scale,
                      .z_scale = args.z_scale,
                      .scale = args.scale ? data<float>(args.scale) : nullptr,
                      .dlogits = out_rows(args.dlogits)};
  const auto bytes = static_cast<unsigned>(router_warps * E * 4);
  const unsigned blocks = grid_of(ceil_div(tokens, router_warps));
  with_experts_of_lane(E, [&](auto width) {
    backward_kernel<decltype(width)::value>
        <<<blocks, router_warps * warp_size, bytes, device::cuda_stream(stream).handle()>>>(p);
  });
  check_launch("router_backward");
}

void router_bias(Stream& stream, const RouterBiasArgs& args) {
  const int64_t E = args.bias.elements();
  bias_kernel<<<1, bias_threads, 0, device::cuda_stream(stream).handle()>>>(
      data<float>(args.stats) + spec::RouterStats{E}.counts(), data<StepState>(args.state),
      data<float>(args.bias), static_cast<int>(E), args.rate);
  check_launch("router_bias");
}

}  // namespace trireme::kernels::cuda
