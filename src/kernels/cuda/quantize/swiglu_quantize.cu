// SPDX-License-Identifier: Apache-2.0
// SwiGLU or its gradient and the quantisation of its result, which is not stored: with scales of
// 128 values, or with a largest magnitude that is known beforehand. The codes are those of the two
// ops in turn.
//
// Bound by memory: forward 4 bytes are read and 2 codes written a value of y, where the ops in turn
// also write and read 2 bytes; backward 6 bytes and 4 codes a value of dy, instead of 8 bytes more.
// A block has 128 rows and 128 columns of y; backward it quantises two tiles, dgate and dup. All
// operands of a block are copied to shared memory at once; each thread reads only its copies. Their
// place is that of the transposed codes later.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/quantize/quantize_tile.cuh"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

constexpr int vector_values = 8;  // bf16 in 16 bytes
static_assert(vector_values == part_side);

struct SwigluParams {
  const bf16 *gate_up, *dy;  // dy: of the gradient only
  int64_t gate_up_stride, dy_stride;
  int64_t F;
  bf16* y;  // gradient, optional: silu(gate) up
  int64_t y_stride;
};

template <bool is_gradient>
constexpr int swiglu_operands = is_gradient ? 3 : 2;  // gate, up, dy
template <bool is_gradient>
constexpr uint32_t swiglu_shared_bytes = swiglu_operands<is_gradient>* part_side* tile_threads * 16;
static_assert(sizeof(QuantizeShared<ScaleShape::row_128>) <= swiglu_shared_bytes<false>);

// Block (x: 128 columns of y, y: 128 rows).
template <typename Format, ScaleShape shape, bool measures, bool is_gradient>
__global__ void __launch_bounds__(tile_threads, 2)
    swiglu_quantize_kernel(SwigluParams a, QuantizeParams p) {
  extern __shared__ uint4 staged[];
  __shared__ uint32_t maxima[tile_threads / warp_size];
  const float tensor_up = begin_quantizing<Format, shape>(p);
  const TileAt tile = {static_cast<int64_t>(blockIdx.y) * tile_side,
                       static_cast<int64_t>(blockIdx.x) * tile_side, p.used.count()};
  if (tile.row >= tile.rows) return;  // the whole block
  const TilePlace place;
  const int64_t row0 = tile.row + place.first_row(), col0 = tile.col + place.first_col();
  const auto copy_of = [&](int operand, int i) {
    return shared_address(staged + (operand * part_side + i) * tile_threads + threadIdx.x);
  };
  const bool has_columns = col0 < a.F;
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    if (row0 + i >= tile.rows || !has_columns) continue;
    const bf16* gate = a.gate_up + (row0 + i) * a.gate_up_stride + col0;
    copy_to_shared(copy_of(0, i), reinterpret_cast<uint64_t>(gate));
    copy_to_shared(copy_of(1, i), reinterpret_cast<uint64_t>(gate + a.F));
    if constexpr (is_gradient) {
      const bf16* dy = a.dy + (row0 + i) * a.dy_stride + col0;
      copy_to_shared(copy_of(2, i), reinterpret_cast<uint64_t>(dy));
    }
  }
  wait_for_copies();

  const auto keep = [](Eight<bf16>& to, const uint4& bits) {
    to.words[0] = bits.x;
    to.words[1] = bits.y;
    to.words[2] = bits.z;
    to.words[3] = bits.w;
  };
  Part<bf16> first, second;  // y; or dgate and dup
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    first[i].clear();
    second[i].clear();
    if (row0 + i >= tile.rows || !has_columns) continue;
    float gate[vector_values], up[vector_values];
    unpack<bf16>(load_shared(copy_of(0, i)), gate);
    unpack<bf16>(load_shared(copy_of(1, i)), up);
    if constexpr (is_gradient) {
      float grad[vector_values], result[vector_values];
      unpack<bf16>(load_shared(copy_of(2, i)), grad);
#pragma unroll
      for (int j = 0; j < vector_values; ++j) {
        const Silu s = silu(gate[j]);
        result[j] = s.value * up[j];
        gate[j] = grad[j] * up[j] * s.derivative;
        up[j] = grad[j] * s.value;
      }
      keep(second[i], pack<bf16>(up));
      if (a.y != nullptr) store_values(a.y + (row0 + i) * a.y_stride + col0, result);
    } else {
#pragma unroll
      for (int j = 0; j < vector_values; ++j) gate[j] = silu(gate[j]).value * up[j];
    }
    keep(first[i], pack<bf16>(gate));
  }
  if (p.raises_by_values) {
    const uint32_t largest = max(largest_of(first), largest_of(second));
    raise_by_block(&p.counts->amax_bits, largest, maxima);
  }
  __syncthreads();  // the copies have been read
  auto& shared = *reinterpret_cast<QuantizeShared<shape>*>(staged);
  ThreadCounts<Format> counts;
  quantize_tile<bf16, Format, shape, measures, true>(p, tile, first, tensor_up, shared, counts);
  if constexpr (is_gradient) {
    __syncthreads();
    const TileAt other = {tile.row, tile.col + a.F, tile.rows};
    quantize_tile<bf16, Format, shape, measures, true>(p, other, second, tensor_up, shared, counts);
  }
  if constexpr (measures) counts.add_to(p.counts);
}

// Returns whether two tensors have memory in common.
bool overlap(const ConstTensor& a, const ConstTensor& b) {
  if (!a || !b) return false;
  const auto end = [](const ConstTensor& t) {
    return t.data + ((t.rows() - 1) * t.row_stride + t.cols()) * base::size_of(t.dtype);
  };
  return a.data < end(b) && b.data < end(a);
}

// Returns whether the result can be quantised where it is computed: its largest magnitude is known
// or not needed, and codes do not overwrite what other blocks read.
bool can_fuse(const QuantizeArgs& q, const ConstTensor& gate_up, const ConstTensor& dy) {
  const bool is_known = q.shape == ScaleShape::row_128 || q.is_delayed;
  const int64_t F = gate_up.cols() / 2;
  const bool is_aligned = is_vectorisable(gate_up) && (!dy || is_vectorisable(dy)) &&
                          F % part_side == 0 && (!q.rows || are_aligned_codes(q.rows, part_side));
  const bool overwrites = overlap(q.rows, gate_up) || overlap(q.columns, gate_up) ||
                          overlap(q.rows, dy) || overlap(q.columns, dy);
  return is_known && is_aligned && !overwrites && gate_up.dtype == base::DType::bf16 &&
         gate_up.rows() > 0 && F > 0;
}

template <typename Format, ScaleShape shape, bool is_gradient>
void launch_swiglu(cudaStream_t stream, const QuantizeArgs& q, const SwigluParams& a) {
  const auto run = [&](auto kernel) {
    constexpr uint32_t bytes = swiglu_shared_bytes<is_gradient>;
    device::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(bytes)),
                       "swiglu and quantize: shared memory");
    kernel<<<grid_of_tiles(q.x.rows(), a.F), tile_threads, bytes, stream>>>(a, quantize_params(q));
  };
  q.measures ? run(swiglu_quantize_kernel<Format, shape, true, is_gradient>)
             : run(swiglu_quantize_kernel<Format, shape, false, is_gradient>);
  check_launch("swiglu and quantize");
}

template <bool is_gradient>
void launch_swiglu(Stream& stream, const QuantizeArgs& q, const SwigluParams& a) {
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  with_format(q.rows ? q.rows.dtype : q.columns.dtype, [&](auto format) {
    using Format = decltype(format);
    q.shape == ScaleShape::tensor
        ? launch_swiglu<Format, ScaleShape::tensor, is_gradient>(handle, q, a)
        : launch_swiglu<Format, ScaleShape::row_128, is_gradient>(handle, q, a);
  });
}

}  // namespace

bool swiglu_forward_quantize(Stream& stream, const SwigluForwardArgs& args,
                             const QuantizeArgs& quantize) {
  if (args.amax || !can_fuse(quantize, args.gate_up, {})) return false;
  launch_swiglu<false>(stream, quantize,
                       {.gate_up = data<bf16>(args.gate_up),
                        .dy = nullptr,
                        .gate_up_stride = args.gate_up.row_stride,
                        .dy_stride = 0,
                        .F = args.y.cols(),
                        .y = nullptr,
                        .y_stride = 0});
  return true;
}

bool swiglu_backward_quantize(Stream& stream, const SwigluBackwardArgs& args,
                              const QuantizeArgs& quantize) {
  // The tiles of dgate end where those of dup begin.
  const bool has_whole_tiles = args.dy.cols() % tile_side == 0;
  if (args.amax || !has_whole_tiles || (args.y && !is_vectorisable(args.y)) ||
      !can_fuse(quantize, args.gate_up, args.dy)) {
    return false;
  }
  launch_swiglu<true>(stream, quantize,
                      {.gate_up = data<bf16>(args.gate_up),
                       .dy = data<bf16>(args.dy),
                       .gate_up_stride = args.gate_up.row_stride,
                       .dy_stride = args.dy.row_stride,
                       .F = args.dy.cols(),
                       .y = args.y ? data<bf16>(args.y) : nullptr,
                       .y_stride = args.y ? args.y.row_stride : 0});
  return true;
}

}  // namespace trireme::kernels::cuda
