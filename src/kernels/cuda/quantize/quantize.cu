// SPDX-License-Identifier: Apache-2.0
// code = format(value * up), by rows and transposed, as kernels/quantize_args.h states.
//
// Bound by memory: a bf16 value is read once (2 bytes) and its codes are written (1 byte each). A
// thread has 8 x 8 values of its block's tile in registers, all loads in flight at once. Codes by
// rows are stored at once, transposed ones pass through shared memory (quantize_tile.cuh).
#include "kernels/cuda/quantize/quantize_tile.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

// Block (x: 128 columns, y: 128 rows). is_wide: x and the codes by rows can be moved 8 values at a
// time.
template <typename T, typename Format, ScaleShape shape, bool measures, bool is_wide>
__global__ void __launch_bounds__(tile_threads) quantize_kernel(QuantizeParams p) {
  __shared__ QuantizeShared<shape> shared;
  __shared__ uint32_t maxima[tile_threads / warp_size];
  const float tensor_up = begin_quantizing<Format, shape>(p);
  const TileAt tile = {static_cast<int64_t>(blockIdx.y) * tile_side,
                       static_cast<int64_t>(blockIdx.x) * tile_side, p.used.count()};
  if (tile.row >= tile.rows) return;  // the whole block
  const TilePlace place;
  const int64_t row0 = tile.row + place.first_row(), col0 = tile.col + place.first_col();
  Part<T> part;
  const T* x = static_cast<const T*>(p.x) + row0 * p.x_stride + col0;
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    if (row0 + i >= tile.rows || col0 >= p.cols) {
      part[i].clear();
    } else if constexpr (is_wide) {
      part[i].load(x + i * p.x_stride);
    } else {
      part[i].load(x + i * p.x_stride, p.cols - col0);
    }
  }
  if (p.raises_by_values) raise_by_block(&p.counts->amax_bits, largest_of(part), maxima);
  ThreadCounts<Format> counts;
  quantize_tile<T, Format, shape, measures, is_wide>(p, tile, part, tensor_up, shared, counts);
  if constexpr (measures) counts.add_to(p.counts);
}

template <typename T, typename Format, ScaleShape shape>
void launch_quantize(cudaStream_t stream, const QuantizeArgs& args) {
  const QuantizeParams p = quantize_params(args);
  const dim3 grid = grid_of_tiles(args.x.rows(), p.cols);
  const auto run = [&](auto kernel) { kernel<<<grid, tile_threads, 0, stream>>>(p); };
  const bool is_wide = is_vectorisable(args.x) && p.cols % part_side == 0 &&
                       (!args.rows || are_aligned_codes(args.rows, part_side));
  // Activations and gradients are bf16; other types need not be fast.
  if constexpr (std::is_same_v<T, bf16>) {
    if (is_wide) {
      args.measures ? run(quantize_kernel<T, Format, shape, true, true>)
                    : run(quantize_kernel<T, Format, shape, false, true>);
      return;
    }
  }
  args.measures ? run(quantize_kernel<T, Format, shape, true, false>)
                : run(quantize_kernel<T, Format, shape, false, false>);
}

}  // namespace

void quantize(Stream& stream, const QuantizeArgs& args) {
  if (args.x.rows() == 0 || args.x.cols() == 0) return;
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  with_real_type(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    with_format(args.rows ? args.rows.dtype : args.columns.dtype, [&](auto format) {
      using Format = decltype(format);
      args.shape == ScaleShape::tensor
          ? launch_quantize<T, Format, ScaleShape::tensor>(handle, args)
          : launch_quantize<T, Format, ScaleShape::row_128>(handle, args);
    });
  });
  check_launch("quantize");
}

}  // namespace trireme::kernels::cuda
