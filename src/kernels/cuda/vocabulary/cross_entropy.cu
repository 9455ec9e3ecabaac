// SPDX-License-Identifier: Apache-2.0
// Statistics and gradient of whole rows of logits: one read and one write.
//
// A block processes rows blockIdx.x, blockIdx.x + gridDim.x, ..; as many blocks are launched as run
// concurrently. It keeps a row in shared memory between the sums and the gradient, and fetches the
// next row into a slot as soon as the slot has been read, so that reads, sums and writes overlap.
// Each thread fetches, sums and overwrites the same vectors in both passes: the only barrier of a
// row is that of the sums over the block. Vectors that do not fit into shared memory are read
// twice, the second time from L2 (25 KiB of a row of 128,256 in bf16, times one block a
// multiprocessor).
//
// [16384, 50257] in bf16 moves 3.3 GB, 0.77 ms at 4.3 TB/s. Two exponentials an element are 0.45
// ms of the multiprocessors' time, overlapped with it.
#include <cuda_pipeline.h>

#include <algorithm>

#include "kernels/cuda/vocabulary/cross_entropy.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int max_threads = 1024;
constexpr int batch = 4;   // vectors of a thread that are processed together
constexpr int groups = 4;  // of `batch` vectors of a thread, in shared memory

// Shared memory of compute capability 9.0: of a multiprocessor, the maximum of a block, and the
// part of each block that the system reserves. The static arrays of the kernel count as `reserved`,
// too.
constexpr int64_t shared_of_processor = 233472, shared_of_block = 232448;
constexpr int64_t reserved = 1024 + 2 * sizeof(MaxAndSum::Shared);

struct Parameters {
  OutRows logits;
  const int32_t* labels;
  int64_t labels_stride;
  float* stats;
  int64_t stats_stride;
  int64_t T;
  int V;
  int kept;  // vectors of a row, from the first on, that are in shared memory
  bool loss_only;
  const float* scale;  // null: 1

  __device__ int32_t label(int64_t t) const { return labels[t * labels_stride]; }
};

// Starts the copy of this thread's vectors of one group into their slots. With no row (null) the
// group is empty.
template <typename T>
__device__ void fetch(const Parameters& a, uint4* slots, const T* row, int group) {
  const int threads = blockDim.x;
#pragma unroll
  for (int k = 0; k < batch; ++k) {
    const int v = static_cast<int>(threadIdx.x) + (group * batch + k) * threads;
    if (row != nullptr && v < a.kept) {
      __pipeline_memcpy_async(slots + v, row + static_cast<int64_t>(v) * Vec<T>::width, 16);
    }
  }
  __pipeline_commit();
}

// Waits for this thread's copies of a group. REQUIRES: the groups of one row were fetched in order,
// and none after them. The empty statement keeps the compiler from reading slots before it.
__device__ void wait_for(int group) {
  __pipeline_wait_prior(groups - 1 - group);
  asm volatile("" ::: "memory");
}

// For the vectors that are not in shared memory, and the single columns after the last complete
// vector, which are read from global memory: calls body(values, first column) and stores the values
// if `writes`.
template <typename T, int W, bool writes, typename Body>
__device__ void for_each_outside(const Parameters& a, T* row, const Body& body) {
  const int threads = blockDim.x, thread = threadIdx.x, vectors = a.V / W;
  for (int first = a.kept + thread; first < vectors; first += batch * threads) {
    float values[batch][W];
#pragma unroll
    for (int k = 0; k < batch; ++k) {
      const int v = first + k * threads;
      if (v < vectors) load_values(row + v * W, values[k]);
    }
#pragma unroll
    for (int k = 0; k < batch; ++k) {
      const int v = first + k * threads;
      if (v >= vectors) continue;
      body(values[k], v * W);
      if constexpr (writes) store_values(row + v * W, values[k]);
    }
  }
  const int column = vectors * W + thread;
  if (column < a.V) {  // fewer than W
    float value[1] = {load(row + column)};
    body(value, column);
    if constexpr (writes) store(row + column, value[0]);
  }
}

// The sums of a row, over the block.
template <typename T, int W>
__device__ MaxAndSum sums_of(const Parameters& a, T* row, const uint4* slots,
                             MaxAndSum::Shared& shared) {
  MaxAndSum total;
  for_each_outside<T, W, false>(a, row, [&](const auto& values, int) { total.add<T>(values); });
  if constexpr (W > 1) {
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      wait_for(group);
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const int v = threadIdx.x + (group * batch + k) * blockDim.x;
        if (v >= a.kept) continue;
        float values[W];
        unpack<T>(slots[v], values);
        total.add<T>(values);
      }
    }
  }
  total.add_over_block(shared);
  return total;
}

// Writes the gradient of a row and fetches the next one.
template <typename T, int W, typename Body>
__device__ void write_grad(const Parameters& a, T* row, const T* next_row, uint4* slots,
                           const Body& body) {
  if constexpr (W > 1) {
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const int v = threadIdx.x + (group * batch + k) * blockDim.x;
        if (v >= a.kept) continue;
        float values[W];
        unpack<T>(slots[v], values);
        body(values, v * W);
        store_values(row + v * W, values);
      }
      fetch(a, slots, next_row, group);  // the old row there has been written as gradient
    }
  }
  for_each_outside<T, W, true>(a, row, body);
}

// REQUIRES: with W > 1, rows start at multiples of 16 bytes, and kept <= groups * batch * threads;
// with W == 1, kept is 0.
template <typename T, int W>
__global__ void __launch_bounds__(max_threads) cross_entropy_kernel(Parameters a) {
  extern __shared__ uint4 slots[];  // [kept]
  // Alternating, so that the barrier of one row separates the uses of its neighbours.
  __shared__ MaxAndSum::Shared shared[2];
  int64_t t = blockIdx.x;
  int32_t label = a.label(t);
  if constexpr (W > 1) {
#pragma unroll 1
    for (int group = 0; group < groups; ++group) fetch(a, slots, a.logits.row<T>(t), group);
  }
  for (int turn = 0; t < a.T; turn ^= 1) {
    T* row = a.logits.row<T>(t);
    const int64_t next = t + gridDim.x;
    const T* next_row = next < a.T ? a.logits.row<T>(next) : nullptr;
    const int32_t next_label = next < a.T ? a.label(next) : -1;
    const int64_t column = column_of(label, 0, a.V);
    // Read before the barrier, after which another thread may write it.
    const float target = threadIdx.x == 0 && column >= 0 ? load(row + column) : 0.0F;

    const MaxAndSum total = sums_of<T, W>(a, row, slots, shared[turn]);
    if (threadIdx.x == 0) {
      float* stats = a.stats + t * a.stats_stride;
      stats[0] = total.max;
      stats[1] = total.sum;
      stats[2] = target;
    }
    if (a.loss_only) {
      if constexpr (W > 1) {
#pragma unroll 1
        for (int group = 0; group < groups; ++group) fetch(a, slots, next_row, group);
      }
    } else {
      const bool is_valid = label >= 0;
      const float scale = scale_at(a.scale);
      const RowGrad grad = {total.max, 1.0F / total.sum * scale, column, scale};
      write_grad<T, W>(a, row, next_row, slots, [&](auto& values, int first) {
        if (is_valid) {
          grad.apply<T>(values, first);
        } else {
          for (float& value : values) value = 0;
        }
      });
    }
    t = next;
    label = next_label;
  }
}

struct Placement {
  int threads;
  int64_t blocks_per_processor, shared_bytes;
};

// Two blocks if two rows fit into shared memory, otherwise one with twice the threads.
Placement placement_of(int64_t row_bytes) {
  constexpr int64_t half = (shared_of_processor / 2 - reserved) / 16 * 16;
  constexpr int64_t whole = (shared_of_block - reserved) / 16 * 16;
  static_assert(half <= 16 * groups * batch * (max_threads / 2));
  static_assert(whole <= 16 * groups * batch * max_threads);
  if (row_bytes <= half) return {max_threads / 2, 2, row_bytes};
  return {max_threads, 1, std::min(row_bytes, whole)};
}

template <typename T, int W>
void launch(Stream& stream, Parameters a) {
  device::CudaStream& cuda = device::cuda_stream(stream);
  const auto kernel = cross_entropy_kernel<T, W>;
  const Placement placement = placement_of(W == 1 ? 0 : a.V / W * int64_t{16});
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shared_of_block - reserved)),
                     "cross_entropy: shared memory");
  device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                          cudaSharedmemCarveoutMaxShared),
                     "cross_entropy: shared memory");
  a.kept = static_cast<int>(placement.shared_bytes / 16);
  const int64_t resident = placement.blocks_per_processor * cuda.cuda_device().multiprocessors();
  kernel<<<grid_of(std::min(a.T, resident)), placement.threads,
           static_cast<size_t>(placement.shared_bytes), cuda.handle()>>>(a);
  check_launch("cross_entropy");
}

}  // namespace

void cross_entropy(Stream& stream, const CrossEntropyArgs& args) {
  const int64_t T = args.logits.rows(), V = args.logits.cols();
  if (T == 0) return;
  TRIREME_CHECK(V <= INT32_MAX / 2, "cross_entropy: a vocabulary of {} is too large", V);
  const Parameters a = {.logits = out_rows(args.logits),
                        .labels = data<int32_t>(args.labels),
                        .labels_stride = args.labels.row_stride,
                        .stats = data<float>(args.stats),
                        .stats_stride = args.stats.row_stride,
                        .T = T,
                        .V = static_cast<int>(V),
                        .kept = 0,
                        .loss_only = args.loss_only,
                        .scale = args.scale ? data<float>(args.scale) : nullptr};
  with_real_type(args.logits.dtype, [&](auto* type) {
    using E = std::remove_pointer_t<decltype(type)>;
    rows_are_aligned(args.logits) ? launch<E, Vec<E>::width>(stream, a) : launch<E, 1>(stream, a);
  });
  add_losses(stream, {.logits = args.logits,
                      .stats = args.stats,
                      .labels = args.labels,
                      .sums = args.sums,
                      .token_losses = args.token_losses});
}

}  // namespace trireme::kernels::cuda
