// SPDX-License-Identifier: Apache-2.0
// Replaces logits by exp(logit - max) / sum - onehot, zero if the label is negative: one read and
// one write of the logits.
#include "kernels/cuda/vocabulary/cross_entropy.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int grad_threads = 256;
constexpr int grad_batch = 4;  // vectors of one thread

struct GradParameters {
  OutRows logits;
  const float* stats;
  int64_t stats_stride;
  const int32_t* labels;
  int64_t labels_stride;
  int64_t T, V, first_column;
  const float* scale;  // null: 1
};

// blockIdx.x is the row, blockIdx.y a chunk of `grad_batch` vectors for each thread; the last chunk
// also has the columns after the last complete vector. REQUIRES: with W > 1, rows start at
// multiples of 16 bytes.
template <typename T, int W>
__global__ void __launch_bounds__(grad_threads) cross_entropy_grad_kernel(GradParameters a) {
  const int64_t t = blockIdx.x, vectors = a.V / W;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * grad_batch * grad_threads + threadIdx.x;
  const int32_t label = a.labels[t * a.labels_stride];
  const bool is_valid = label >= 0;
  T* logits = a.logits.row<T>(t);
  float values[grad_batch][W] = {};
  if (is_valid) {
#pragma unroll
    for (int k = 0; k < grad_batch; ++k) {
      const int64_t v = first + k * grad_threads;
      if (v < vectors) load_values(logits + v * W, values[k]);
    }
  }
  const float* stats = a.stats + t * a.stats_stride;
  const float scale = scale_at(a.scale);
  const RowGrad grad = {stats[0], 1.0F / stats[1] * scale, column_of(label, a.first_column, a.V),
                        scale};
#pragma unroll
  for (int k = 0; k < grad_batch; ++k) {
    const int64_t v = first + k * grad_threads;
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
void launch_grad(cudaStream_t stream, const GradParameters& a) {
  const int64_t vectors = a.V / W;
  const int64_t chunks = vectors == 0 ? 1 : ceil_div(vectors, grad_batch * grad_threads);
  TRIREME_CHECK(chunks <= 65535, "cross_entropy_grad: a vocabulary of {} is too large", a.V);
  cross_entropy_grad_kernel<T, W>
      <<<dim3(grid_of(a.T), static_cast<unsigned>(chunks)), grad_threads, 0, stream>>>(a);
  check_launch("cross_entropy_grad");
}

}  // namespace

void cross_entropy_grad(Stream& stream, const CrossEntropyGradArgs& args) {
  const int64_t T = args.logits.rows(), V = args.logits.cols();
  add_losses(stream, args);
  if (args.loss_only || T == 0 || V == 0) return;
  const GradParameters a = {.logits = out_rows(args.logits),
                            .stats = data<float>(args.stats),
                            .stats_stride = args.stats.row_stride,
                            .labels = data<int32_t>(args.labels),
                            .labels_stride = args.labels.row_stride,
                            .T = T,
                            .V = V,
                            .first_column = args.first_column,
                            .scale = args.scale ? data<float>(args.scale) : nullptr};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  with_real_type(args.logits.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    rows_are_aligned(args.logits) ? launch_grad<E, Vec<E>::width>(handle, a)
                                  : launch_grad<E, 1>(handle, a);
  });
}

}  // namespace trireme::kernels::cuda
