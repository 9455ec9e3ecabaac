// SPDX-License-Identifier: Apache-2.0
// Groups rows that came from several ranks: one warp computes where each rank's part of each group
// begins, then every row finds its part.
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int threads_of_arrange = 256;

struct Arrange {
  const int32_t* counts;  // [blocks, groups]
  int blocks, groups, tile, block_rows;
  int64_t rows, grouped_rows;
  int32_t *place, *source, *starts;
  // In the workspace: the first row of each part in its block, and among grouped rows.
  int32_t *from, *to;  // [blocks, groups + 1], [blocks, groups]
};

// Each thread has a group or a block at a time: numbers are small.
__global__ void __launch_bounds__(threads_of_arrange) parts_kernel(Arrange p) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * threads_of_arrange + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * threads_of_arrange;
  for (int64_t row = thread; row < p.grouped_rows; row += step) p.source[row] = -1;
  if (blockIdx.x != 0) return;
  const int index = static_cast<int>(threadIdx.x);
  // The rows of each group, rounded up, where its start will be.
  for (int g = index; g < p.groups; g += threads_of_arrange) {
    int sum = 0;
    for (int b = 0; b < p.blocks; ++b) {
      p.to[b * p.groups + g] = sum;
      sum += p.counts[b * p.groups + g];
    }
    p.starts[g] = (sum + p.tile - 1) / p.tile * p.tile;
  }
  for (int b = index; b < p.blocks; b += threads_of_arrange) {
    int sum = 0;
    for (int g = 0; g < p.groups; ++g) {
      p.from[b * (p.groups + 1) + g] = sum;
      sum += p.counts[b * p.groups + g];
    }
    p.from[b * (p.groups + 1) + p.groups] = sum;
  }
  __syncthreads();
  if (index == 0) {
    int start = 0;
    for (int g = 0; g < p.groups; ++g) {
      const int rounded = p.starts[g];
      p.starts[g] = start;
      start += rounded;
    }
    p.starts[p.groups] = start;
  }
  __syncthreads();
  for (int i = index; i < p.blocks * p.groups; i += threads_of_arrange) {
    p.to[i] += p.starts[i % p.groups];
  }
}

__global__ void __launch_bounds__(threads_of_arrange) arrange_kernel(Arrange p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * threads_of_arrange + threadIdx.x;
  if (row >= p.rows) return;
  const int block = static_cast<int>(row / p.block_rows);
  const int at = static_cast<int>(row % p.block_rows);
  const int32_t* from = p.from + block * (p.groups + 1);
  if (at >= from[p.groups]) {
    p.place[row] = -1;
    return;
  }
  int low = 0, high = p.groups;  // from[low] <= at < from[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (from[middle] <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int place = p.to[block * p.groups + low] + at - from[low];
  p.place[row] = place;
  p.source[place] = static_cast<int32_t>(row);
}

}  // namespace

void arrange_rows(Stream& stream, const ArrangeRowsArgs& args) {
  device::CudaStream& cuda = device::cuda_stream(stream);
  const int64_t blocks = args.counts.rows(), groups = args.counts.cols();
  const int64_t words = blocks * (2 * groups + 1);
  TRIREME_CHECK(4 * words <= cuda.workspace().bytes(), "arrange_rows: {} bytes of workspace of {}",
                cuda.workspace().bytes(), 4 * words);
  TRIREME_CHECK(args.place.rows() <= INT32_MAX && args.source.rows() <= INT32_MAX,
                "arrange_rows: {} and {} rows", args.place.rows(), args.source.rows());
  auto* from = reinterpret_cast<int32_t*>(cuda.workspace().data);
  const Arrange p = {.counts = data<int32_t>(args.counts),
                     .blocks = static_cast<int>(blocks),
                     .groups = static_cast<int>(groups),
                     .tile = static_cast<int>(args.tile),
                     .block_rows = static_cast<int>(args.place.rows() / blocks),
                     .rows = args.place.rows(),
                     .grouped_rows = args.source.rows(),
                     .place = data<int32_t>(args.place),
                     .source = data<int32_t>(args.source),
                     .starts = data<int32_t>(args.starts),
                     .from = from,
                     .to = from + blocks * (groups + 1)};
  const int64_t fill = std::max<int64_t>(1, ceil_div(p.grouped_rows, threads_of_arrange));
  parts_kernel<<<grid_of(std::min<int64_t>(fill, 1024)), threads_of_arrange, 0, cuda.handle()>>>(p);
  if (p.rows > 0) {
    arrange_kernel<<<grid_of(ceil_div(p.rows, threads_of_arrange)), threads_of_arrange, 0,
                     cuda.handle()>>>(p);
  }
  check_launch("arrange_rows");
}

}  // namespace trireme::kernels::cuda
