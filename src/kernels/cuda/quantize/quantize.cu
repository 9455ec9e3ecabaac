// SPDX-License-Identifier: Apache-2.0
// code = format(value * up), by rows and transposed, as kernels/quantize_args.h states.
//
// Bound by memory: a bf16 value is read once (2 bytes) and its codes are written (1 byte each). A
// block has a tile of 128 x 128, the values that share scales in both directions; a thread has 8 x
// 8 of it in registers (code_tile.cuh), all loads in flight at once. Codes by rows are stored at
// once, transposed ones pass through shared memory.
#include "kernels/cuda/quantize/code_tile.cuh"
#include "kernels/cuda/quantize/float8.cuh"
#include "kernels/cuda/table_ops.h"

namespace trireme::kernels::cuda {
namespace {

struct QuantizeParams {
  const void* x;
  int64_t x_stride;
  UsedRows used;
  int64_t cols;
  uint8_t *rows_codes, *columns_codes;  // null if absent
  int64_t rows_stride, columns_stride;
  float *rows_scale, *columns_scale;
  int64_t rows_scale_stride, columns_scale_stride;  // between blocks of 128
  const uint32_t* amax;                             // with ScaleShape::tensor
  QuantizeCounts* counts;
  bool raises_by_values;  // counts->amax_bits
  bool are_columns_aligned;
};

// Eight consecutive values as they are stored.
template <typename T>
struct Eight {
  uint32_t words[2 * sizeof(T)];

  __device__ float at(int j) const {
    if constexpr (std::is_same_v<T, float>) {
      return __uint_as_float(words[j]);
    } else if constexpr (std::is_same_v<T, bf16>) {
      return __uint_as_float(j % 2 == 0 ? words[j / 2] << 16 : words[j / 2] & 0xffff0000U);
    } else {
      return stored_value(__ushort_as_half(static_cast<uint16_t>(words[j / 2] >> (16 * (j % 2)))));
    }
  }
  __device__ void clear() {
#pragma unroll
    for (uint32_t& word : words) word = 0;
  }
  // 16 bytes at a time.
  __device__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)) / 2; ++i) {
      const uint4 bits = load_bits(from + i * Vec<T>::width);
      words[4 * i] = bits.x;
      words[4 * i + 1] = bits.y;
      words[4 * i + 2] = bits.z;
      words[4 * i + 3] = bits.w;
    }
  }
  // The first `count`; the others are 0.
  __device__ void load(const T* from, int64_t count) {
    clear();
#pragma unroll
    for (int j = 0; j < part_side; ++j) {
      if (j >= count) continue;
      if constexpr (std::is_same_v<T, float>) {
        words[j] = __float_as_uint(from[j]);
      } else {
        words[j / 2] |= static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(from)[j])
                        << (16 * (j % 2));
      }
    }
  }
};

template <typename T>
using Part = Eight<T>[part_side];

// The scales of a tile with ScaleShape::row_128.
struct TileScales {
  uint32_t maxima[tile_threads / warp_size][tile_side];  // of columns, by warp
  float columns[tile_side];
};

// Returns the factor of row unit * 8 + i for i = lane % 8, and stores its scale. Of the eight rows
// of half a warp, lane l % 8 gets row l % 8.
template <typename Format, typename T>
__device__ float row_factor(const QuantizeParams& p, const Part<T>& part, int64_t row0,
                            int64_t rows) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  uint32_t mine = 0;
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < part_side; ++j) largest = max(largest, magnitude_bits(part[i].at(j)));
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, offset));
    }
    if (lane % part_side == i) mine = largest;
  }
  const float up = up_of<Format>(mine);
  const int64_t row = row0 + lane % part_side;
  if (lane % 16 < part_side && row < rows) {
    p.rows_scale[static_cast<int64_t>(blockIdx.x) * p.rows_scale_stride + row] = scale_of(up);
  }
  return up;
}

// Computes the factors of the tile's columns and stores their scales.
template <typename Format, typename T>
__device__ void find_column_factors(const QuantizeParams& p, const TilePlace& place,
                                    const Part<T>& part, TileScales& scales) {
#pragma unroll
  for (int j = 0; j < part_side; ++j) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < part_side; ++i) largest = max(largest, magnitude_bits(part[i].at(j)));
    largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, 16));
    if (threadIdx.x % warp_size < 16) {
      scales.maxima[threadIdx.x / warp_size][place.first_col() + j] = largest;
    }
  }
  __syncthreads();
  if (threadIdx.x < tile_side) {
    uint32_t largest = 0;
#pragma unroll
    for (int w = 0; w < tile_threads / warp_size; ++w) {
      largest = max(largest, scales.maxima[w][threadIdx.x]);
    }
    const float up = up_of<Format>(largest);
    scales.columns[threadIdx.x] = up;
    const int64_t c = static_cast<int64_t>(blockIdx.x) * tile_side + threadIdx.x;
    if (c < p.cols) {
      p.columns_scale[static_cast<int64_t>(blockIdx.y) * p.columns_scale_stride + c] = scale_of(up);
    }
  }
  __syncthreads();
}

// The codes of a thread's part, with a factor for each row and column.
template <typename Format, typename T, typename Factor>
__device__ void encode(const Part<T>& part, uint2 (&codes)[part_side], const Factor& up) {
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    const auto scaled = [&](int j) { return __fmul_rn(part[i].at(j), up(i, j)); };
    codes[i] = make_uint2(four_codes<Format>(scaled(0), scaled(1), scaled(2), scaled(3)),
                          four_codes<Format>(scaled(4), scaled(5), scaled(6), scaled(7)));
  }
}

// Rows and columns that exist, of a thread's part.
struct Extent {
  int64_t rows, cols;
};

template <typename Format, typename T, typename Factor>
__device__ void count(const Part<T>& part, const uint2 (&codes)[part_side], const Extent& extent,
                      const Factor& up, ThreadCounts<Format>& counts) {
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
#pragma unroll
    for (int j = 0; j < part_side; ++j) {
      const uint32_t word = j < 4 ? codes[i].x : codes[i].y;
      if (i < extent.rows && j < extent.cols) {
        counts.add(part[i].at(j), static_cast<uint8_t>(word >> (8 * (j % 4))), up(i, j));
      }
    }
  }
}

// Block (x: 128 columns, y: 128 rows). is_wide: x and the codes by rows can be moved 8 values at a
// time.
template <typename T, typename Format, ScaleShape shape, bool measures, bool is_wide>
__global__ void __launch_bounds__(tile_threads) quantize_kernel(QuantizeParams p) {
  constexpr bool is_tensor = shape == ScaleShape::tensor;
  __shared__ CodeTile tile;
  __shared__ std::conditional_t<is_tensor, uint32_t, TileScales> scales;
  __shared__ uint32_t block_maxima[tile_threads / warp_size];
  const TilePlace place;
  const int64_t rows = p.used.count();
  const int64_t tile_row = static_cast<int64_t>(blockIdx.y) * tile_side;
  const int64_t tile_col = static_cast<int64_t>(blockIdx.x) * tile_side;
  const bool is_first = blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0;
  uint32_t amax = 0;
  if constexpr (is_tensor) amax = *p.amax & 0x7fffffffU;
  const float tensor_up = is_tensor ? up_of<Format>(amax) : 0.0F;
  if (is_tensor && is_first) {
    if (p.rows_codes != nullptr) *p.rows_scale = scale_of(tensor_up);
    if (p.columns_codes != nullptr) *p.columns_scale = scale_of(tensor_up);
    if (p.counts != nullptr && !p.raises_by_values) raise_bits(&p.counts->amax_bits, amax);
  }
  if (tile_row >= rows) return;  // the whole block
  const int64_t row0 = tile_row + place.first_row(), col0 = tile_col + place.first_col();
  const Extent extent = {rows - row0, p.cols - col0};

  Part<T> part;
  const T* x = static_cast<const T*>(p.x) + row0 * p.x_stride + col0;
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    if (i >= extent.rows || extent.cols <= 0) {
      part[i].clear();
    } else if constexpr (is_wide) {
      part[i].load(x + i * p.x_stride);
    } else {
      part[i].load(x + i * p.x_stride, extent.cols);
    }
  }
  if (p.raises_by_values) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < part_side; ++i) {
#pragma unroll
      for (int j = 0; j < part_side; ++j) largest = max(largest, magnitude_bits(part[i].at(j)));
    }
    raise_by_block(&p.counts->amax_bits, largest, block_maxima);
  }
  ThreadCounts<Format> counts;
  uint2 codes[part_side];
  if (p.rows_codes != nullptr) {
    float ups[part_side];
    if constexpr (is_tensor) {
#pragma unroll
      for (int i = 0; i < part_side; ++i) ups[i] = tensor_up;
    } else {
      const float mine = row_factor<Format, T>(p, part, row0, rows);
#pragma unroll
      for (int i = 0; i < part_side; ++i) ups[i] = __shfl_sync(0xffffffffU, mine, i, part_side);
    }
    const auto up = [&](int i, int) { return ups[i]; };
    encode<Format, T>(part, codes, up);
    uint8_t* to = p.rows_codes + row0 * p.rows_stride + col0;
#pragma unroll
    for (int i = 0; i < part_side; ++i) {
      if (i >= extent.rows || extent.cols <= 0) continue;
      if constexpr (is_wide) {
        *reinterpret_cast<uint2*>(to + i * p.rows_stride) = codes[i];
      } else {
#pragma unroll
        for (int j = 0; j < part_side; ++j) {
          const uint32_t word = j < 4 ? codes[i].x : codes[i].y;
          if (j < extent.cols) {
            to[i * p.rows_stride + j] = static_cast<uint8_t>(word >> (8 * (j % 4)));
          }
        }
      }
    }
    if constexpr (measures) count<Format, T>(part, codes, extent, up, counts);
  }
  if (p.columns_codes != nullptr) {
    if constexpr (is_tensor) {
      if (p.rows_codes == nullptr) {
        const auto up = [&](int, int) { return tensor_up; };
        encode<Format, T>(part, codes, up);
        if constexpr (measures) count<Format, T>(part, codes, extent, up, counts);
      }
    } else {
      find_column_factors<Format, T>(p, place, part, scales);
      float ups[part_side];
#pragma unroll
      for (int j = 0; j < part_side; ++j) ups[j] = scales.columns[place.first_col() + j];
      const auto up = [&](int, int j) { return ups[j]; };
      encode<Format, T>(part, codes, up);
      if constexpr (measures) {
        if (p.rows_codes == nullptr) count<Format, T>(part, codes, extent, up, counts);
      }
    }
    transpose_bytes(codes);
    tile.put(place, codes);
    __syncthreads();
    const auto left = [](int64_t end, int64_t begin) {
      return static_cast<int>(end - begin < tile_side ? end - begin : tile_side);
    };
    tile.store(p.columns_codes + tile_col * p.columns_stride + tile_row, p.columns_stride,
               left(p.cols, tile_col), left(rows, tile_row), p.are_columns_aligned);
  }
  if constexpr (measures) counts.add_to(p.counts);
}

bool is_aligned(const Tensor& codes, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(codes.data) % static_cast<uintptr_t>(bytes) == 0 &&
         codes.row_stride % bytes == 0;
}

template <typename T, typename Format, ScaleShape shape>
void launch_quantize(cudaStream_t stream, const QuantizeArgs& args, const QuantizeParams& p) {
  const int64_t across = ceil_div(p.cols, tile_side), down = ceil_div(args.x.rows(), tile_side);
  TRIREME_CHECK(across <= INT32_MAX && down <= 65535, "quantize: a matrix of {} exceeds the grid",
                args.x.shape.to_string());
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  const auto run = [&](auto kernel) { kernel<<<grid, tile_threads, 0, stream>>>(p); };
  const bool is_wide = is_vectorisable(args.x) && p.cols % part_side == 0 &&
                       (!args.rows || is_aligned(args.rows, part_side));
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

template <typename T>
void launch_quantize(cudaStream_t stream, const QuantizeArgs& args, const QuantizeParams& p) {
  with_format(args.rows ? args.rows.dtype : args.columns.dtype, [&](auto format) {
    using Format = decltype(format);
    args.shape == ScaleShape::tensor
        ? launch_quantize<T, Format, ScaleShape::tensor>(stream, args, p)
        : launch_quantize<T, Format, ScaleShape::row_128>(stream, args, p);
  });
}

}  // namespace

void quantize(Stream& stream, const QuantizeArgs& args) {
  if (args.x.rows() == 0 || args.x.cols() == 0) return;
  const QuantizeParams p = {
      .x = args.x.data,
      .x_stride = args.x.row_stride,
      .used = used_rows(args.x, args.end),
      .cols = args.x.cols(),
      .rows_codes = args.rows ? data<uint8_t>(args.rows) : nullptr,
      .columns_codes = args.columns ? data<uint8_t>(args.columns) : nullptr,
      .rows_stride = args.rows ? args.rows.row_stride : 0,
      .columns_stride = args.columns ? args.columns.row_stride : 0,
      .rows_scale = args.rows ? data<float>(args.rows_scale) : nullptr,
      .columns_scale = args.columns ? data<float>(args.columns_scale) : nullptr,
      .rows_scale_stride = args.rows ? args.rows_scale.row_stride : 0,
      .columns_scale_stride = args.columns ? args.columns_scale.row_stride : 0,
      .amax = args.amax ? data<uint32_t>(args.amax) : nullptr,
      .counts = args.counts ? counts_of(args.counts) : nullptr,
      .raises_by_values = args.counts && (args.shape != ScaleShape::tensor || args.is_delayed),
      .are_columns_aligned = args.columns && is_aligned(args.columns, 16)};
  const cudaStream_t handle = device::cuda_stream(stream).handle();
  if (args.x.dtype == base::DType::f16) {
    launch_quantize<f16>(handle, args, p);
  } else {
    with_real_type(args.x.dtype, [&](auto* type) {
      launch_quantize<std::remove_pointer_t<decltype(type)>>(handle, args, p);
    });
  }
  check_launch("quantize");
}

}  // namespace trireme::kernels::cuda
