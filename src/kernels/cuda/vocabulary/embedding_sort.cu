// SPDX-License-Identifier: Apache-2.0
// Runs of 1,024 keys are sorted in shared memory (Batcher's bitonic sort), then eight runs at a
// time are merged: the position of a key is its position in its run plus, by binary search, the
// number of smaller keys in the seven others. 65,536 tokens take three kernels of a few
// microseconds each.
#include "kernels/cuda/vocabulary/embedding_sort.cuh"

#include <utility>

#include "kernels/cuda/launch.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int log_first_run = 10, first_run = 1 << log_first_run;
constexpr int log_ways = 3, ways = 1 << log_ways;
constexpr int merge_threads = 256;

__device__ uint64_t key_of(const SortArgs& args, int64_t token) {
  const int64_t row = args.indices[token * args.index_stride] - args.first_row;
  const bool is_here = row >= 0 && row < args.table_rows;
  const uint32_t kept = is_here ? static_cast<uint32_t>(row) : no_row;
  return (uint64_t{kept} << 32) | static_cast<uint32_t>(token);
}

// After the pass of `size`, runs of that length are sorted, up and down in turn; the last is up.
__global__ void __launch_bounds__(first_run / 2) sort_runs_kernel(SortArgs args) {
  __shared__ uint64_t run[first_run];
  const int64_t begin = int64_t{blockIdx.x} * first_run;
  for (int i = static_cast<int>(threadIdx.x); i < first_run; i += first_run / 2) {
    run[i] = begin + i < args.count ? key_of(args, begin + i) : ~uint64_t{0};
  }
  __syncthreads();
  for (int size = 2; size <= first_run; size *= 2) {
    for (int distance = size / 2; distance > 0; distance /= 2) {
      const int thread = static_cast<int>(threadIdx.x);
      const int low = 2 * thread - (thread & (distance - 1)), high = low + distance;
      const bool is_up = (low & size) == 0;
      const uint64_t a = run[low], b = run[high];
      if ((a > b) == is_up) {
        run[low] = b;
        run[high] = a;
      }
      __syncthreads();
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < first_run; i += first_run / 2) {
    if (begin + i < args.count) args.keys[begin + i] = run[i];
  }
}

// Merges groups of `ways` neighbouring runs of 2^log_run keys. The searches in all runs advance
// together, so that their loads overlap.
__global__ void __launch_bounds__(merge_threads)
    merge_runs_kernel(const uint64_t* from, uint64_t* to, int64_t count, int log_run) {
  const int64_t i = int64_t{blockIdx.x} * merge_threads + threadIdx.x;
  if (i >= count) return;
  const uint64_t key = from[i];
  const int run = 1 << log_run;
  const int64_t group = i >> (log_run + log_ways) << (log_run + log_ways);
  const int64_t own = i >> log_run << log_run;
  from += group;

  // For each run: the number of its keys, and of those known to be smaller. The run of this key
  // counts as empty.
  int length[ways], smaller[ways];
#pragma unroll
  for (int w = 0; w < ways; ++w) {
    const int64_t begin = group + (int64_t{w} << log_run);
    const int64_t rest = count - begin < run ? count - begin : run;
    length[w] = begin == own || rest < 0 ? 0 : static_cast<int>(rest);
    smaller[w] = 0;
  }
  for (int step = run; step > 0; step /= 2) {
#pragma unroll
    for (int w = 0; w < ways; ++w) {
      const int next = smaller[w] + step;
      const int64_t at = (int64_t{w} << log_run) + next - 1;
      if (next <= length[w] && from[at] < key) smaller[w] = next;
    }
  }
  int64_t place = i - own;
#pragma unroll
  for (int w = 0; w < ways; ++w) place += smaller[w];
  to[group + place] = key;
}

}  // namespace

const uint64_t* sort_by_row(cudaStream_t stream, const SortArgs& args) {
  TRIREME_CHECK(args.count > 0 && args.count <= int64_t{1} << 29, "{} tokens to sort", args.count);
  TRIREME_CHECK(args.table_rows < no_row, "a table of {} rows", args.table_rows);
  const int64_t runs = ceil_div(args.count, first_run);
  sort_runs_kernel<<<static_cast<unsigned>(runs), first_run / 2, 0, stream>>>(args);
  check_launch("embedding_backward: sort");

  uint64_t *from = args.keys, *to = args.spare;
  const auto blocks = static_cast<unsigned>(ceil_div(args.count, merge_threads));
  for (int log_run = log_first_run; int64_t{1} << log_run < args.count; log_run += log_ways) {
    merge_runs_kernel<<<blocks, merge_threads, 0, stream>>>(from, to, args.count, log_run);
    check_launch("embedding_backward: merge");
    std::swap(from, to);
  }
  return from;
}

}  // namespace trireme::kernels::cuda
