// SPDX-License-Identifier: Apache-2.0
// dtable[tokens[t] - first_row] += dy[t], without atomics and in an order that depends on the
// tokens only; the same for positions.
//
// Tokens are sorted by row (embedding_sort.cuh). Each block of 32 sorted tokens is summed
// separately, from left to right. A run of tokens of one row inside a block is added to the table
// at once. A run that crosses blocks leaves a partial row in every block that it touches: in slot 1
// of the block in which it begins, and in slot 0 of the others. The block in which it begins adds
// them up.
//
// Time: dy is read once, the rows of its tokens are read and written once, and there are at most
// two partial rows for 32 tokens.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/vocabulary/embedding_sort.cuh"
#include "spec/facts/backend.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int sorted_block = static_cast<int>(spec::embedding_block);
constexpr int in_flight = 8;  // rows of dy that a thread loads before it adds them
static_assert(sorted_block % in_flight == 0);

template <typename Dy, typename Grad>
struct Sums {
  const uint64_t* keys;  // sorted
  int64_t count;         // of tokens
  const Dy* dy;
  Grad* table;
  float* partials;  // [blocks, 2, cols]
  int64_t dy_stride, table_stride, cols;
};

template <typename Grad, int W>
__device__ void add_to_row(Grad* row, const float (&sum)[W]) {
  auto chunk = Chunk<Grad, W>::load(row);
#pragma unroll
  for (int i = 0; i < W; ++i) store(&chunk.at[i], load(&chunk.at[i]) + sum[i]);
  chunk.store(row);
}

// A thread block for each block of sorted tokens (x) and each group of columns (y); a thread has W
// columns. REQUIRES: W divides cols.
template <typename Dy, typename Grad, int W>
__global__ void sum_blocks_kernel(Sums<Dy, Grad> s) {
  __shared__ uint32_t rows[sorted_block + 2];  // with one neighbour at each end
  __shared__ uint32_t tokens[sorted_block + 2];
  const int64_t begin = int64_t{blockIdx.x} * sorted_block;
  for (int i = static_cast<int>(threadIdx.x); i < sorted_block + 2; i += blockDim.x) {
    const int64_t at = begin + i - 1;
    const bool is_there = at >= 0 && at < s.count;
    const uint64_t key = is_there ? s.keys[at] : ~uint64_t{0};
    rows[i] = row_of(key);
    tokens[i] = token_of(key);
  }
  __syncthreads();
  const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W;
  if (col >= s.cols) return;

  // Tokens without a row, and positions after the last token, are at the end.
  float sum[W] = {};
  for (int first = 1; first <= sorted_block && rows[first] != no_row; first += in_flight) {
    Chunk<Dy, W> dy[in_flight];
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      if (rows[first + i] == no_row) continue;
      dy[i] = Chunk<Dy, W>::load(s.dy + int64_t{tokens[first + i]} * s.dy_stride + col);
    }
#pragma unroll
    for (int i = 0; i < in_flight; ++i) {
      const int at = first + i;
      const uint32_t row = rows[at];
      if (row == no_row) continue;
#pragma unroll
      for (int w = 0; w < W; ++w) sum[w] += load(&dy[i].at[w]);
      const bool is_last = at == sorted_block;
      if (rows[at + 1] == row && !is_last) continue;
      // The run ends here, or at least leaves the block.
      const bool came_in = rows[0] == row, goes_out = rows[at + 1] == row;
      if (!came_in && !goes_out) {
        add_to_row<Grad, W>(s.table + int64_t{row} * s.table_stride + col, sum);
      } else {
        Chunk<float, W> piece;
#pragma unroll
        for (int w = 0; w < W; ++w) piece.at[w] = sum[w];
        const int64_t slot = 2 * int64_t{blockIdx.x} + (came_in ? 0 : 1);
        piece.store(s.partials + slot * s.cols + col);
      }
#pragma unroll
      for (int w = 0; w < W; ++w) sum[w] = 0;
    }
  }
}

constexpr int join_lanes = 8;  // that share the pieces of a run
constexpr int join_max_width = 4;

// A thread block for each block of sorted tokens (x), most of which have nothing to do, and for
// every gridDim.y-th group of columns. Lane i takes the pieces i, i + 8, ... of the run.
template <typename Grad, int W>
__global__ void __launch_bounds__(warp_size* join_lanes) join_blocks_kernel(Sums<float, Grad> s) {
  __shared__ float lane_sums[join_lanes][W][warp_size];
  const int64_t block = blockIdx.x, begin = block * sorted_block, end = begin + sorted_block;
  if (end >= s.count) return;
  const uint32_t row = row_of(s.keys[end - 1]);
  if (row == no_row || row_of(s.keys[end]) != row) return;    // no run crosses the end
  if (begin > 0 && row_of(s.keys[begin - 1]) == row) return;  // it began further left

  const int lane = static_cast<int>(threadIdx.y), x = static_cast<int>(threadIdx.x);
  const int64_t group_cols = int64_t{warp_size} * W;
  for (int64_t group = blockIdx.y; group * group_cols < s.cols; group += gridDim.y) {
    const int64_t col = group * group_cols + x * W;
    float sum[W] = {};
    for (int64_t b = block + 1 + lane; col < s.cols; b += join_lanes) {
      if (b * sorted_block >= s.count || row_of(s.keys[b * sorted_block]) != row) break;
      const auto piece = Chunk<float, W>::load(s.partials + 2 * b * s.cols + col);
#pragma unroll
      for (int w = 0; w < W; ++w) sum[w] += piece.at[w];
    }
#pragma unroll
    for (int w = 0; w < W; ++w) lane_sums[lane][w][x] = sum[w];
    __syncthreads();
    if (lane == 0 && col < s.cols) {
      const auto piece = Chunk<float, W>::load(s.partials + (2 * block + 1) * s.cols + col);
#pragma unroll
      for (int w = 0; w < W; ++w) {
        sum[w] = piece.at[w];
        for (int i = 0; i < join_lanes; ++i) sum[w] += lane_sums[i][w][x];
      }
      add_to_row<Grad, W>(s.table + int64_t{row} * s.table_stride + col, sum);
    }
    __syncthreads();
  }
}

template <int W, typename Dy, typename Grad>
void launch_sums(cudaStream_t stream, const Sums<Dy, Grad>& s) {
  const auto blocks = static_cast<unsigned>(ceil_div(s.count, sorted_block));
  const int64_t chunks = s.cols / W;
  const int64_t threads = std::min<int64_t>(base::round_up(chunks, warp_size), 256);
  const dim3 sum_grid(blocks, static_cast<unsigned>(ceil_div(chunks, threads)));
  sum_blocks_kernel<Dy, Grad, W><<<sum_grid, static_cast<unsigned>(threads), 0, stream>>>(s);
  check_launch("embedding_backward: sum");
  if (blocks == 1) return;  // no run crosses blocks

  constexpr int join_width = std::min(W, join_max_width);
  const Sums<float, Grad> join = {s.keys,     s.count, nullptr,        s.table,
                                  s.partials, 0,       s.table_stride, s.cols};
  // Few blocks share their columns among more thread blocks, so that the device is busy.
  const int64_t groups = ceil_div(s.cols, warp_size * join_width);
  const int64_t shares = std::clamp<int64_t>(2048 / blocks, 1, groups);
  join_blocks_kernel<Grad, join_width>
      <<<dim3(blocks, static_cast<unsigned>(shares)), dim3(warp_size, join_lanes), 0, stream>>>(
          join);
  check_launch("embedding_backward: join");
}

struct Workspace {
  uint64_t *keys, *spare;
  float* partials;
};

Workspace cut(const EmbeddingBackwardArgs& args) {
  const int64_t tokens = args.dy.rows(), width = args.dy.cols();
  const Tensor& w = args.workspace;
  const base::TensorSpec needed =
      spec::embedding_workspace(spec::cuda_backend(true), tokens, width);
  TRIREME_CHECK(w && w.is_contiguous() && w.bytes() >= needed.shape.elements(),
                "embedding_backward: needs a workspace of {1} bytes, {0} are available",
                w ? w.bytes() : 0, needed.shape.elements());
  TRIREME_CHECK(reinterpret_cast<uintptr_t>(w.data) % 16 == 0,
                "embedding_backward: the workspace is not aligned to 16 bytes");
  auto* keys = reinterpret_cast<uint64_t*>(w.data);
  const int64_t key_bytes = base::round_up(2 * 8 * tokens, base::grain_bytes);
  return {keys, keys + tokens, reinterpret_cast<float*>(w.data + key_bytes)};
}

void add_rows(cudaStream_t stream, const EmbeddingBackwardArgs& args, const ConstTensor& indices,
              int64_t first_row, const Tensor& table) {
  const ConstTensor& dy = args.dy;
  const Workspace workspace = cut(args);
  const uint64_t* keys = sort_by_row(stream, {.indices = data<int32_t>(indices),
                                              .index_stride = indices.row_stride,
                                              .count = dy.rows(),
                                              .first_row = first_row,
                                              .table_rows = table.rows(),
                                              .keys = workspace.keys,
                                              .spare = workspace.spare});
  with_real_type(dy.dtype, [&](auto* dy_type) {
    with_gradient_type(table.dtype, [&](auto* grad_type) {
      using Dy = std::remove_pointer_t<decltype(dy_type)>;
      using Grad = std::remove_pointer_t<decltype(grad_type)>;
      if constexpr (mixes_16_bits<Dy, Grad>) return refuse_mixed_16_bits("embedding_backward");
      const Sums<Dy, Grad> s = {
          keys,          dy.rows(),        data<Dy>(dy), data<Grad>(table), workspace.partials,
          dy.row_stride, table.row_stride, dy.cols()};
      constexpr int wide = chunk_width<Dy, Grad>;
      if (is_vectorisable(dy) && is_vectorisable(table) && dy.cols() % wide == 0) {
        launch_sums<wide>(stream, s);
      } else {
        launch_sums<1>(stream, s);
      }
    });
  });
}

}  // namespace

void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args) {
  if (args.dy.elements() == 0) return;
  cudaStream_t handle = device::cuda_stream(stream).handle();
  add_rows(handle, args, args.tokens, args.first_row, args.dtable);
  if (args.dposition_table) add_rows(handle, args, args.positions, 0, args.dposition_table);
}

}  // namespace trireme::kernels::cuda
