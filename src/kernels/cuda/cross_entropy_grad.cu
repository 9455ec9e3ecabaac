// SPDX-License-Identifier: Apache-2.0
// loss = log(sum) + max - target, and the logits become exp(logit - max) / sum - onehot, zero where
// the label is negative: one read and one write of the logits. Losses of rows are fp64 in the
// stream's workspace; one block adds them up in an order that the number of rows alone decides.
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/rows.h"
#include "kernels/step_state.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int batch = 4;  // vectors of one thread
constexpr int sum_threads = 1024;

struct Parameters {
  OutRows logits;
  const float* stats;
  int64_t stats_stride;
  const int32_t* labels;
  int64_t labels_stride;
  OutRows token_losses;
  double* losses;  // [T], in the workspace
  StepSums* sums;
  int64_t T, V, first_column;

  __device__ int32_t label(int64_t t) const { return labels[t * labels_stride]; }
};

__global__ void __launch_bounds__(threads) row_losses(Parameters a) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (t >= a.T) return;
  double loss = 0;
  if (a.label(t) >= 0) {
    const float* stats = a.stats + t * a.stats_stride;
    loss = log(static_cast<double>(stats[1])) + static_cast<double>(stats[0]) -
           static_cast<double>(stats[2]);
  }
  a.losses[t] = loss;
  if (a.token_losses.data != nullptr) a.token_losses.set(t, 0, static_cast<float>(loss));
}

// One block. Thread i takes rows i, i + 1024, ..; the threads are added as a tree.
__global__ void __launch_bounds__(sum_threads) add_losses(Parameters a) {
  __shared__ double losses[sum_threads];
  __shared__ int64_t tokens[sum_threads];
  const int thread = threadIdx.x;
  double loss = 0;
  int64_t count = 0;
#pragma unroll 4
  for (int64_t t = thread; t < a.T; t += sum_threads) {
    loss += a.losses[t];
    count += a.label(t) >= 0 ? 1 : 0;
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

// The gradient of the W logits from column `first` on. `label_column` is -1 where the label is not
// in this row.
struct RowGrad {
  float highest, factor;
  int64_t label_column;

  template <typename T, int W>
  __device__ void apply(float (&values)[W], int64_t first) const {
#pragma unroll
    for (int j = 0; j < W; ++j) values[j] = exp_of<T>(values[j] - highest) * factor;
    if (label_column >= first && label_column < first + W) {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        if (first + j == label_column) values[j] -= 1.0F;
      }
    }
  }
};

// blockIdx.x is the row, blockIdx.y a chunk of `batch` vectors for each thread; the last chunk also
// has the columns after the last whole vector. REQUIRES: with W > 1, rows start at multiples of 16
// bytes.
template <typename T, int W>
__global__ void __launch_bounds__(threads) cross_entropy_grad_kernel(Parameters a) {
  const int64_t t = blockIdx.x, vectors = a.V / W;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * batch * threads + threadIdx.x;
  const int32_t label = a.label(t);
  const bool is_valid = label >= 0;
  T* logits = a.logits.row<T>(t);
  float values[batch][W] = {};
  if (is_valid) {
#pragma unroll
    for (int k = 0; k < batch; ++k) {
      const int64_t v = first + k * threads;
      if (v < vectors) load_values(logits + v * W, values[k]);
    }
  }
  const float* stats = a.stats + t * a.stats_stride;
  const RowGrad grad = {stats[0], 1.0F / stats[1], column_of(label, a.first_column, a.V)};
#pragma unroll
  for (int k = 0; k < batch; ++k) {
    const int64_t v = first + k * threads;
    if (v >= vectors) continue;
    if (is_valid) grad.apply<T>(values[k], v * W);
    store_values(logits + v * W, values[k]);
  }
  const int64_t left = vectors * W + threadIdx.x;  // fewer than W columns
  if (blockIdx.y + 1 == gridDim.y && left < a.V) {
    float value[1] = {0};
    if (is_valid) {
      value[0] = load(logits + left);
      grad.apply<T>(value, left);
    }
    store(logits + left, value[0]);
  }
}

template <typename T, int W>
void launch_grad(cudaStream_t stream, const Parameters& a) {
  const int64_t vectors = a.V / W;
  const int64_t chunks = vectors == 0 ? 1 : ceil_div(vectors, batch * threads);
  TRIREME_CHECK(chunks <= 65535, "a vocabulary of {}", a.V);
  cross_entropy_grad_kernel<T, W>
      <<<dim3(grid_of(a.T), static_cast<unsigned>(chunks)), threads, 0, stream>>>(a);
  check_launch("cross_entropy_grad");
}

}  // namespace

void cross_entropy_grad(Stream& stream, const CrossEntropyGradArgs& args) {
  const int64_t T = args.logits.rows(), V = args.logits.cols();
  if (T == 0) return;
  const device::Tensor workspace = stream.workspace();
  TRIREME_CHECK(workspace && workspace.bytes() >= T * static_cast<int64_t>(sizeof(double)),
                "cross_entropy_grad: a workspace of {} bytes for {} rows", workspace.bytes(), T);
  const Parameters a = {.logits = out_rows(args.logits),
                        .stats = data<float>(args.stats),
                        .stats_stride = args.stats.row_stride,
                        .labels = data<int32_t>(args.labels),
                        .labels_stride = args.labels.row_stride,
                        .token_losses = out_rows(args.token_losses),
                        .losses = data<double>(workspace),
                        .sums = data<StepSums>(args.sums),
                        .T = T,
                        .V = V,
                        .first_column = args.first_column};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  row_losses<<<grid_of(ceil_div(T, threads)), threads, 0, handle>>>(a);
  check_launch("cross_entropy row_losses");
  add_losses<<<1, sum_threads, 0, handle>>>(a);
  check_launch("cross_entropy add_losses");
  if (args.loss_only || V == 0) return;
  with_real_type(args.logits.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    rows_are_aligned(args.logits) ? launch_grad<E, Vec<E>::width>(handle, a)
                                  : launch_grad<E, 1>(handle, a);
  });
}

}  // namespace trireme::kernels::cuda
