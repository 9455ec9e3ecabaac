// SPDX-License-Identifier: Apache-2.0
// y[t] = table[tokens[t] - first_row] + position_table[positions[t]]. Bound by memory: one row read
// (two with positions) and one written for every token.
#include <type_traits>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

template <typename T>
struct Forward {
  const int32_t *tokens, *positions;
  const T *table, *position_table;  // the latter may be null
  T* y;
  int64_t token_stride, position_stride, table_stride, position_table_stride, y_stride;
  int64_t first_row, table_rows;
};

template <typename T, int W>
__global__ void forward_kernel(Extent extent, Forward<T> f) {
  for_each_chunk<W>(extent, [&](int64_t t, int64_t col, int64_t count) {
    const int64_t row = f.tokens[t * f.token_stride] - f.first_row;
    Chunk<T, W> y;
#pragma unroll
    for (int i = 0; i < W; ++i) y.at[i] = T{};
    if (row >= 0 && row < f.table_rows) {
      y = Chunk<T, W>::load(f.table + row * f.table_stride + col, count);
    }
    if (f.position_table != nullptr) {
      const int64_t position = f.positions[t * f.position_stride];
      const auto p =
          Chunk<T, W>::load(f.position_table + position * f.position_table_stride + col, count);
#pragma unroll
      for (int i = 0; i < W; ++i) store(&y.at[i], load(&y.at[i]) + load(&p.at[i]));
    }
    y.store(f.y + t * f.y_stride + col, count);
  });
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForwardArgs& args) {
  const Extent extent = {args.y.rows(), args.y.cols()};
  if (args.y.elements() == 0) return;
  with_real_type(args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Forward<T> f = {};
    f.tokens = data<int32_t>(args.tokens);
    f.token_stride = args.tokens.row_stride;
    f.table = data<T>(args.table);
    f.table_stride = args.table.row_stride;
    f.table_rows = args.table.rows();
    f.first_row = args.first_row;
    f.y = data<T>(args.y);
    f.y_stride = args.y.row_stride;
    // The stride of a table of one row is not used.
    bool is_aligned = has_aligned_rows(args.y, extent) &&
                      has_aligned_rows(args.table, {args.table.rows(), args.table.cols()});
    if (args.position_table) {
      f.positions = data<int32_t>(args.positions);
      f.position_stride = args.positions.row_stride;
      f.position_table = data<T>(args.position_table);
      f.position_table_stride = args.position_table.row_stride;
      is_aligned =
          is_aligned && has_aligned_rows(args.position_table,
                                         {args.position_table.rows(), args.position_table.cols()});
    }
    cudaStream_t handle = device::cuda_stream(stream).handle();
    if (is_aligned) {
      const auto [grid, block] = launch_shape(extent, Vec<T>::width);
      forward_kernel<T, Vec<T>::width><<<grid, block, 0, handle>>>(extent, f);
    } else {
      const auto [grid, block] = launch_shape(extent, 1);
      forward_kernel<T, 1><<<grid, block, 0, handle>>>(extent, f);
    }
  });
  check_launch("embedding_forward");
}

}  // namespace trireme::kernels::cuda
