// SPDX-License-Identifier: Apache-2.0
// stats = {max, sum of exp(logit - max), logit of the label}, in one read of the logits: maximum
// and sum are kept together, and the sum is scaled when the maximum grows.
#include "kernels/cuda/vocabulary/cross_entropy.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int stats_threads = 512;
constexpr int stats_batch = 4;  // vectors of a thread in flight at one time

struct StatsParameters {
  InRows logits;
  const int32_t* labels;
  int64_t labels_stride;
  float* stats;
  int64_t stats_stride;
  int64_t V, first_column;
};

// One block for each row. REQUIRES: with W > 1, rows start at multiples of 16 bytes.
template <typename T, int W>
__global__ void __launch_bounds__(stats_threads) cross_entropy_stats_kernel(StatsParameters a) {
  __shared__ MaxAndSum::Shared shared;
  const int64_t t = blockIdx.x;
  const int thread = threadIdx.x;
  const T* logits = a.logits.row<T>(t);
  const int64_t vectors = a.V / W;
  MaxAndSum total;
  for (int64_t first = thread; first < vectors; first += stats_batch * stats_threads) {
    float values[stats_batch][W];
#pragma unroll
    for (int k = 0; k < stats_batch; ++k) {
      const int64_t v = first + k * stats_threads;
      if (v < vectors) load_values(logits + v * W, values[k]);
    }
#pragma unroll
    for (int k = 0; k < stats_batch; ++k) {
      if (first + k * stats_threads < vectors) total.add<T>(values[k]);
    }
  }
  if (vectors * W + thread < a.V) {  // fewer than W columns are left
    const float value[1] = {load(logits + vectors * W + thread)};
    total.add<T>(value);
  }

  total.add_over_block(shared);
  if (thread == 0) {
    const int64_t column = column_of(a.labels[t * a.labels_stride], a.first_column, a.V);
    float* stats = a.stats + t * a.stats_stride;
    stats[0] = total.max;
    stats[1] = total.sum;
    stats[2] = column >= 0 ? load(logits + column) : 0.0F;
  }
}

}  // namespace

void cross_entropy_stats(Stream& stream, const CrossEntropyStatsArgs& args) {
  const int64_t T = args.logits.rows();
  if (T == 0) return;
  const StatsParameters a = {.logits = in_rows(args.logits),
                             .labels = data<int32_t>(args.labels),
                             .labels_stride = args.labels.row_stride,
                             .stats = data<float>(args.stats),
                             .stats_stride = args.stats.row_stride,
                             .V = args.logits.cols(),
                             .first_column = args.first_column};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  with_real_type(args.logits.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    if (rows_are_aligned(args.logits)) {
      cross_entropy_stats_kernel<E, Vec<E>::width><<<grid_of(T), stats_threads, 0, handle>>>(a);
    } else {
      cross_entropy_stats_kernel<E, 1><<<grid_of(T), stats_threads, 0, handle>>>(a);
    }
  });
  check_launch("cross_entropy_stats");
}

}  // namespace trireme::kernels::cuda
