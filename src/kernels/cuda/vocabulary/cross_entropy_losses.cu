// SPDX-License-Identifier: Apache-2.0
// loss = log(sum) + max - target of every row, fp64 in the stream's workspace; then one block adds
// them up in an order that depends on the number of rows only.
#include "kernels/cuda/vocabulary/cross_entropy.cuh"
#include "kernels/step_state.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int loss_threads = 256;
constexpr int sum_threads = 1024;

struct LossParameters {
  const float* stats;
  int64_t stats_stride;
  const int32_t* labels;
  int64_t labels_stride;
  OutRows token_losses;
  double* losses;  // [T], in the workspace
  StepSums* sums;
  int64_t T;

  __device__ bool is_valid(int64_t t) const { return labels[t * labels_stride] >= 0; }
};

__global__ void __launch_bounds__(loss_threads) row_losses(LossParameters a) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * loss_threads + threadIdx.x;
  if (t >= a.T) return;
  double loss = 0;
  if (a.is_valid(t)) {
    const float* stats = a.stats + t * a.stats_stride;
    loss = log(static_cast<double>(stats[1])) + static_cast<double>(stats[0]) -
           static_cast<double>(stats[2]);
  }
  a.losses[t] = loss;
  if (a.token_losses.data != nullptr) a.token_losses.set(t, 0, static_cast<float>(loss));
}

// One block. Thread i takes rows i, i + 1024, ..; the threads are added as a tree.
__global__ void __launch_bounds__(sum_threads) sum_of_losses(LossParameters a) {
  __shared__ double losses[sum_threads];
  __shared__ int64_t tokens[sum_threads];
  const int thread = threadIdx.x;
  double loss = 0;
  int64_t count = 0;
#pragma unroll 4
  for (int64_t t = thread; t < a.T; t += sum_threads) {
    loss += a.losses[t];
    count += a.is_valid(t) ? 1 : 0;
  }
  losses[thread] = loss;
  tokens[thread] = count;
  for (int half = sum_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) {
      losses[thread] += losses[thread + half];
      tokens[thread] += tokens[thread + half];
    }
  }
  if (thread == 0) {
    a.sums->loss += losses[0];
    a.sums->tokens += tokens[0];
  }
}

}  // namespace

void add_losses(Stream& stream, const CrossEntropyGradArgs& args) {
  const int64_t T = args.logits.rows();
  if (T == 0) return;
  const device::Tensor workspace = stream.workspace();
  TRIREME_CHECK(workspace && workspace.bytes() >= T * static_cast<int64_t>(sizeof(double)),
                "cross-entropy: a workspace of {} bytes is too small for {} rows",
                workspace.bytes(), T);
  const LossParameters a = {.stats = data<float>(args.stats),
                            .stats_stride = args.stats.row_stride,
                            .labels = data<int32_t>(args.labels),
                            .labels_stride = args.labels.row_stride,
                            .token_losses = out_rows(args.token_losses),
                            .losses = data<double>(workspace),
                            .sums = data<StepSums>(args.sums),
                            .T = T};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  row_losses<<<grid_of(ceil_div(T, loss_threads)), loss_threads, 0, handle>>>(a);
  check_launch("cross-entropy row_losses");
  sum_of_losses<<<1, sum_threads, 0, handle>>>(a);
  check_launch("cross-entropy sum_of_losses");
}

}  // namespace trireme::kernels::cuda
