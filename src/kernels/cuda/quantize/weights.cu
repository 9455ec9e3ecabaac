// SPDX-License-Identifier: Apache-2.0
// The largest magnitudes and the codes of a rank's part of weight matrices: elements [first, first
// + n) of `count` matrices [rows, cols] that lie one after the other. Bound by memory.
//
// A thread block has 128 x 128 of a matrix, the values that share a scale; what the rank does not
// have of it is skipped. A warp has every eighth row, a lane four values of it.
#include <algorithm>

#include "kernels/cuda/quantize/float8.cuh"
#include "kernels/cuda/table_ops.h"
#include "kernels/cuda/values.cuh"

namespace trireme::kernels::cuda {
namespace {

constexpr int weight_threads = 256;
constexpr int weight_warps = weight_threads / warp_size;
constexpr int block_side = static_cast<int>(spec::scale_block);
constexpr int lane_values = block_side / warp_size;
constexpr int block_turns = block_side / weight_warps;  // rows of a warp
constexpr int scale_threads = 256;

struct Weights {
  const float* values;   // of element `first`
  int64_t first, end;    // elements of this rank
  int64_t rows, cols;    // of a matrix
  int64_t row_blocks;    // of a matrix
  int64_t first_block;   // row block of the first thread block, over all matrices
  int64_t scales;        // of a matrix
  int64_t scale_stride;  // between row blocks; 0 with one scale a matrix
};

// The 128 x 128 values of a thread block.
struct WeightBlock {
  int64_t matrix, row_block, row0, col0;

  __device__ explicit WeightBlock(const Weights& w) {
    const int64_t block = w.first_block + blockIdx.y;
    matrix = block / w.row_blocks;
    row_block = block % w.row_blocks;
    row0 = row_block * block_side;
    col0 = static_cast<int64_t>(blockIdx.x) * block_side;
  }
  __device__ int64_t scale_index(const Weights& w) const {
    const int64_t begin = matrix * w.scales;
    return w.scale_stride == 0 ? begin : begin + row_block * w.scale_stride + blockIdx.x;
  }
};

// Four values of a row of the block, of which those in [begin, end) are the rank's. is_wide, here
// and below: none or all are.
struct LaneValues {
  float at[lane_values];
  int64_t element;  // of the first
  int begin, end;
};

template <bool is_wide>
__device__ LaneValues load_lane(const Weights& w, const WeightBlock& block, int turn) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int64_t row = block.row0 + turn * weight_warps + threadIdx.x / warp_size;
  const int64_t col = block.col0 + lane * lane_values;
  LaneValues v = {};
  v.element = (block.matrix * w.rows + row) * w.cols + col;
  const bool is_inside = row < w.rows && col < w.cols;
  const float* from = w.values + (v.element - w.first);
  if constexpr (is_wide) {
    const bool is_mine = is_inside && v.element >= w.first && v.element < w.end;
    v.end = is_mine ? lane_values : 0;
    if (is_mine) load_values(from, v.at);
  } else {
    const int64_t row_end = v.element + (w.cols - col);
    const int64_t stop = w.end < row_end ? w.end : row_end;
    const auto clipped = [&](int64_t element) {
      const int64_t at = element - v.element;
      return static_cast<int>(at < 0 ? 0 : at < lane_values ? at : lane_values);
    };
    v.begin = clipped(w.first);
    v.end = is_inside ? clipped(stop) : 0;
#pragma unroll
    for (int j = 0; j < lane_values; ++j) {
      if (j >= v.begin && j < v.end) v.at[j] = from[j];
    }
  }
  return v;
}

template <bool is_wide>
__global__ void __launch_bounds__(weight_threads) weight_amax_kernel(Weights w, uint32_t* amax) {
  __shared__ uint32_t shared[weight_warps];
  const WeightBlock block(w);
  uint32_t largest = 0;
#pragma unroll 8
  for (int turn = 0; turn < block_turns; ++turn) {
    const LaneValues v = load_lane<is_wide>(w, block, turn);
#pragma unroll
    for (const float value : v.at) largest = max(largest, magnitude_bits(value));
  }
  raise_by_block(amax + block.scale_index(w), largest, shared);
}

template <typename Format, bool measures, bool is_wide>
__global__ void __launch_bounds__(weight_threads)
    weight_quantize_kernel(Weights w, const uint32_t* amax, uint8_t* codes,
                           QuantizeCounts* counts) {
  const WeightBlock block(w);
  const float up = up_of<Format>(amax[block.scale_index(w)] & 0x7fffffffU);
  ThreadCounts<Format> counted;
  const auto convert = [&](const LaneValues& v) {
    if (v.begin >= v.end) return;
    const auto scaled = [&](int j) { return __fmul_rn(v.at[j], up); };
    const uint32_t four = four_codes<Format>(scaled(0), scaled(1), scaled(2), scaled(3));
    uint8_t* to = codes + (v.element - w.first);
    if constexpr (is_wide) {
      *reinterpret_cast<uint32_t*>(to) = four;
    } else {
#pragma unroll
      for (int j = 0; j < lane_values; ++j) {
        if (j >= v.begin && j < v.end) to[j] = static_cast<uint8_t>(four >> (8 * j));
      }
    }
    if constexpr (measures) {
      const uint32_t mask = (1U << v.end) - (1U << v.begin);
      const float4 values = make_float4(v.at[0], v.at[1], v.at[2], v.at[3]);
      const float4 ups = make_float4(up, up, up, up);
      counted.add_eight(values, values, make_uint2(four, 0), ups, ups, mask);
    }
  };
  // All loads of several turns come before their stores, which to the compiler might change what
  // later loads read.
  constexpr int turns_at_once = 8;
  static_assert(block_turns % turns_at_once == 0);
  for (int first = 0; first < block_turns; first += turns_at_once) {
    LaneValues all[turns_at_once];
#pragma unroll
    for (int i = 0; i < turns_at_once; ++i) all[i] = load_lane<is_wide>(w, block, first + i);
#pragma unroll
    for (const LaneValues& v : all) convert(v);
  }
  if constexpr (measures) counted.add_to(counts);
}

template <typename Format>
__global__ void __launch_bounds__(scale_threads)
    weight_scales_kernel(const uint32_t* amax, float* scale, int64_t count,
                         QuantizeCounts* counts) {
  __shared__ uint32_t shared[scale_threads / warp_size];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * scale_threads + threadIdx.x;
  const uint32_t bits = i < count ? amax[i] & 0x7fffffffU : 0U;
  if (i < count) scale[i] = scale_of(up_of<Format>(bits));
  if (counts != nullptr) raise_by_block(&counts->amax_bits, bits, shared);
}

template <typename Args>
Weights weights_of(const Args& args) {
  const base::Shape scales = spec::scale_spec(args.shape, args.rows, args.cols).shape;
  return {.values = data<float>(args.weights),
          .first = args.first,
          .end = args.first + args.weights.elements(),
          .rows = args.rows,
          .cols = args.cols,
          .row_blocks = ceil_div(args.rows, block_side),
          .first_block = 0,
          .scales = scales.elements(),
          .scale_stride = args.shape == ScaleShape::tensor ? 0 : scales[1]};
}

// Returns whether four values at a time never cross an end of the rank's part or of a row.
template <typename Args>
bool is_wide_part(const Args& args) {
  return args.first % lane_values == 0 && args.weights.elements() % lane_values == 0 &&
         args.cols % lane_values == 0 && reinterpret_cast<uintptr_t>(args.weights.data) % 16 == 0;
}

// Returns the row block of an element, over all matrices.
int64_t row_block_of(const Weights& w, int64_t element) {
  const int64_t matrix = element / (w.rows * w.cols), rest = element % (w.rows * w.cols);
  return matrix * w.row_blocks + rest / w.cols / block_side;
}

// Calls run(grid, weights) for parts of the range that a grid can have.
template <typename F>
void over_blocks(Weights w, const F& run) {
  constexpr int64_t most = 65535;
  const int64_t last = row_block_of(w, w.end - 1);
  const auto across = static_cast<unsigned>(ceil_div(w.cols, block_side));
  for (int64_t block = row_block_of(w, w.first); block <= last; block += most) {
    w.first_block = block;
    run(dim3(across, static_cast<unsigned>(std::min(most, last - block + 1))), w);
  }
}

}  // namespace

void weight_amax(Stream& stream, const WeightAmaxArgs& args) {
  if (args.weights.elements() == 0) return;
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  over_blocks(weights_of(args), [&](dim3 grid, const Weights& w) {
    const auto run = [&](auto kernel) {
      kernel<<<grid, weight_threads, 0, handle>>>(w, data<uint32_t>(args.amax));
    };
    is_wide_part(args) ? run(weight_amax_kernel<true>) : run(weight_amax_kernel<false>);
  });
  check_launch("weight_amax");
}

void weight_quantize(Stream& stream, const WeightQuantizeArgs& args) {
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  const auto* amax = data<uint32_t>(args.amax);
  const int64_t scales = args.amax.elements();
  QuantizeCounts* counts = args.counts ? counts_of(args.counts) : nullptr;
  with_format(args.codes.dtype, [&](auto format) {
    using Format = decltype(format);
    if (scales > 0) {
      weight_scales_kernel<Format>
          <<<grid_of(ceil_div(scales, scale_threads)), scale_threads, 0, handle>>>(
              amax, data<float>(args.scale), scales, counts);
      check_launch("scales of weights");
    }
    if (args.weights.elements() == 0) return;
    const bool is_wide =
        is_wide_part(args) && reinterpret_cast<uintptr_t>(args.codes.data) % lane_values == 0;
    over_blocks(weights_of(args), [&](dim3 grid, const Weights& w) {
      const auto run = [&](auto kernel) {
        kernel<<<grid, weight_threads, 0, handle>>>(w, amax, data<uint8_t>(args.codes), counts);
      };
      if (is_wide) {
        args.measures ? run(weight_quantize_kernel<Format, true, true>)
                      : run(weight_quantize_kernel<Format, false, true>);
      } else {
        args.measures ? run(weight_quantize_kernel<Format, true, false>)
                      : run(weight_quantize_kernel<Format, false, false>);
      }
    });
  });
  check_launch("weight_quantize");
}

}  // namespace trireme::kernels::cuda
