// SPDX-License-Identifier: Apache-2.0
// Quantises the values of a tile of 128 x 128 that a block has in registers (code_tile.cuh), by
// rows and transposed, as kernels/quantize_args.h states. A tile has all values that share a scale
// of 128, in both directions.
#pragma once

#include "kernels/cuda/quantize/code_tile.cuh"
#include "kernels/cuda/quantize/float8.cuh"

namespace trireme::kernels::cuda {

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

// Where a tile begins, and the rows of the matrix.
struct TileAt {
  int64_t row, col;
  int64_t rows;
};

// Returns the factor of one of the thread's eight rows, that of number lane % 8, and stores its
// scale.
template <typename Format, typename T>
__device__ float row_factor(const QuantizeParams& p, const TileAt& tile, const TilePlace& place,
                            const Part<T>& part) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  uint32_t mine = 0;
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    Largest<T> of_row;
#pragma unroll
    for (const uint32_t word : part[i].words) of_row.add_word(word);
    uint32_t largest = of_row.bits();
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, offset));
    }
    if (lane % part_side == i) mine = largest;
  }
  const float up = row_up_of<Format>(mine);
  const int64_t row = tile.row + place.first_row() + lane % part_side;
  if (lane % 16 < part_side && row < tile.rows) {
    p.rows_scale[tile.col / tile_side * p.rows_scale_stride + row] = scale_of(up);
  }
  return up;
}

// Computes the factors of the tile's columns and stores their scales.
template <typename Format, typename T>
__device__ void find_column_factors(const QuantizeParams& p, const TileAt& tile,
                                    const TilePlace& place, const Part<T>& part,
                                    TileScales& scales) {
  uint32_t(&maxima)[tile_side] = scales.maxima[threadIdx.x / warp_size];
  constexpr int words = static_cast<int>(sizeof(Eight<T>) / 4);  // of one or two columns each
#pragma unroll
  for (int w = 0; w < words; ++w) {
    constexpr bool is_pair = words < part_side;
    constexpr uint32_t without_sign = is_pair ? 0x7fff7fffU : 0x7fffffffU;
    const auto larger = [](uint32_t a, uint32_t b) {
      return is_pair ? max_of_pairs(a, b) : max(a, b);
    };
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < part_side; ++i) largest = larger(largest, part[i].words[w] & without_sign);
    largest = larger(largest, __shfl_xor_sync(0xffffffffU, largest, 16));
    if (threadIdx.x % warp_size >= 16) continue;
    if constexpr (is_pair) {
      maxima[place.first_col() + 2 * w] = bits_of_16<T>(largest & 0xffffU);
      maxima[place.first_col() + 2 * w + 1] = bits_of_16<T>(largest >> 16);
    } else {
      maxima[place.first_col() + w] = largest;
    }
  }
  __syncthreads();
  if (threadIdx.x < tile_side) {
    uint32_t largest = 0;
#pragma unroll
    for (int w = 0; w < tile_threads / warp_size; ++w) {
      largest = max(largest, scales.maxima[w][threadIdx.x]);
    }
    const float up = row_up_of<Format>(largest);
    scales.columns[threadIdx.x] = up;
    const int64_t c = tile.col + threadIdx.x;
    if (c < p.cols) {
      p.columns_scale[tile.row / tile_side * p.columns_scale_stride + c] = scale_of(up);
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
struct PartExtent {
  int64_t rows, cols;
};

template <typename Format, typename T, typename Factor>
__device__ void count_part(const Part<T>& part, const uint2 (&codes)[part_side],
                           const PartExtent& extent, const Factor& up,
                           ThreadCounts<Format>& counts) {
  static_assert(part_side == 8);
  const int64_t cols = extent.cols < 0 ? 0 : extent.cols < part_side ? extent.cols : part_side;
  const uint32_t mask = (1U << cols) - 1;
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
    if (i >= extent.rows) continue;
    const auto four = [](const auto& at, int first) {
      return make_float4(at(first), at(first + 1), at(first + 2), at(first + 3));
    };
    const auto value = [&](int j) { return part[i].at(j); };
    const auto factor = [&](int j) { return up(i, j); };
    counts.add_eight(four(value, 0), four(value, 4), codes[i], four(factor, 0), four(factor, 4),
                     mask);
  }
}

// Shared memory of a block.
template <ScaleShape shape>
struct QuantizeShared {
  CodeTile codes;
  std::conditional_t<shape == ScaleShape::tensor, uint32_t, TileScales> scales;
};

// Stores the codes and scales of a tile; with ScaleShape::tensor `tensor_up` is the factor. All
// threads call it; a barrier must come before the next call. is_wide: codes by rows can be stored
// 8 at a time.
template <typename T, typename Format, ScaleShape shape, bool measures, bool is_wide>
__device__ void quantize_tile(const QuantizeParams& p, const TileAt& tile, const Part<T>& part,
                              float tensor_up, QuantizeShared<shape>& shared,
                              ThreadCounts<Format>& counts) {
  constexpr bool is_tensor = shape == ScaleShape::tensor;
  const TilePlace place;
  const int64_t row0 = tile.row + place.first_row(), col0 = tile.col + place.first_col();
  const PartExtent extent = {tile.rows - row0, p.cols - col0};
  uint2 codes[part_side];
  if (p.rows_codes != nullptr) {
    float ups[part_side];
    if constexpr (is_tensor) {
#pragma unroll
      for (int i = 0; i < part_side; ++i) ups[i] = tensor_up;
    } else {
      const float mine = row_factor<Format, T>(p, tile, place, part);
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
    if constexpr (measures) count_part<Format, T>(part, codes, extent, up, counts);
  }
  if (p.columns_codes == nullptr) return;
  if constexpr (is_tensor) {
    if (p.rows_codes == nullptr) {
      const auto up = [&](int, int) { return tensor_up; };
      encode<Format, T>(part, codes, up);
      if constexpr (measures) count_part<Format, T>(part, codes, extent, up, counts);
    }
  } else {
    find_column_factors<Format, T>(p, tile, place, part, shared.scales);
    float ups[part_side];
#pragma unroll
    for (int j = 0; j < part_side; ++j) ups[j] = shared.scales.columns[place.first_col() + j];
    const auto up = [&](int, int j) { return ups[j]; };
    encode<Format, T>(part, codes, up);
    if constexpr (measures) {
      if (p.rows_codes == nullptr) count_part<Format, T>(part, codes, extent, up, counts);
    }
  }
  transpose_bytes(codes);
  shared.codes.put(place, codes);
  __syncthreads();
  const auto left = [](int64_t end, int64_t begin) {
    return static_cast<int>(end - begin < tile_side ? end - begin : tile_side);
  };
  shared.codes.store(p.columns_codes + tile.col * p.columns_stride + tile.row, p.columns_stride,
                     left(p.cols, tile.col), left(tile.rows, tile.row), p.are_columns_aligned);
}

template <typename T>
__device__ uint32_t largest_of(const Part<T>& part) {
  Largest<T> largest;
#pragma unroll
  for (int i = 0; i < part_side; ++i) {
#pragma unroll
    for (const uint32_t word : part[i].words) largest.add_word(word);
  }
  return largest.bits();
}

// Returns the factor of all values; one thread of the grid also stores its scales, and raises the
// counted magnitude unless the values do that. With other shapes of scales, returns 0.
template <typename Format, ScaleShape shape>
__device__ float begin_quantizing(const QuantizeParams& p) {
  if constexpr (shape != ScaleShape::tensor) return 0;
  const uint32_t amax = *p.amax & 0x7fffffffU;
  const float up = up_of<Format>(amax);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    if (p.rows_codes != nullptr) *p.rows_scale = scale_of(up);
    if (p.columns_codes != nullptr) *p.columns_scale = scale_of(up);
    if (p.counts != nullptr && !p.raises_by_values) raise_bits(&p.counts->amax_bits, amax);
  }
  return up;
}

// ---- host side

inline bool are_aligned_codes(const Tensor& codes, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(codes.data) % static_cast<uintptr_t>(bytes) == 0 &&
         codes.row_stride % bytes == 0;
}

inline QuantizeParams quantize_params(const QuantizeArgs& args) {
  return {.x = args.x.data,
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
          .are_columns_aligned = args.columns && are_aligned_codes(args.columns, 16)};
}

// A block for each tile of a matrix.
inline dim3 grid_of_tiles(int64_t rows, int64_t cols) {
  const int64_t across = ceil_div(cols, tile_side), down = ceil_div(rows, tile_side);
  TRIREME_CHECK(across <= INT32_MAX && down <= 65535, "quantize: {} x {} values exceed the grid",
                rows, cols);
  return {static_cast<unsigned>(across), static_cast<unsigned>(down)};
}

}  // namespace trireme::kernels::cuda
