// SPDX-License-Identifier: Apache-2.0
// Shared by the general attention kernels, which multiply in fp32 on CUDA cores. A block of 16 x 16
// threads works on tiles of `tile` rows (tokens) by `width` columns (the head size K, padded with
// zeros), held in shared memory as fp32 with four floats between rows, so that 16 rows read at one
// column hit different banks. Thread (ty, tx) owns rows ty + 16 i of a product; the 16 threads of a
// row are one half of a warp.
#pragma once

#include <climits>

#include "kernels/cuda/attention/attention_problem.h"
#include "kernels/cuda/launch.cuh"

namespace trireme::kernels::cuda {

constexpr int attention_threads = 256;
constexpr int attention_side = 16;  // threads along either side of a block

// Sizes of one instance: `width` is 32, 64, 128 or 256.
template <int padded_width>
struct TileShape {
  static constexpr int width = padded_width;
  static constexpr int tile = width <= 128 ? 64 : 32;
  static constexpr int pitch = width + 4;      // floats between rows of a tile [tile, width]
  static constexpr int pair_pitch = tile + 4;  // and of a tile of pairs [tile, tile]
  static constexpr int per_thread = tile / attention_side;  // rows, and columns of pairs
  static constexpr int columns = width / attention_side;    // of a thread in [tile, width]
  static constexpr int vector = columns < 4 ? columns : 4;  // of them that are adjacent
  static constexpr int tile_floats = tile * pitch;
  static constexpr int pair_floats = tile * pair_pitch;

  // Column of the c-th element of thread tx.
  __device__ static int column(int c, int tx) {
    return c / vector * attention_side * vector + tx * vector + c % vector;
  }
};

template <int count>
struct alignas(4 * count) Floats {
  float at[count];
};

// Sum and maximum over the 16 threads of a row, in a fixed order; all threads receive the result.
__device__ inline float row_sum(float value) {
#pragma unroll
  for (int offset = attention_side / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}
__device__ inline float row_max(float value) {
#pragma unroll
  for (int offset = attention_side / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

template <typename S, typename E>
__device__ void load_tile_as(float* to, const HeadRows& from, int head, int K, int first, int end) {
  const E* base = static_cast<const E*>(from.data) + static_cast<int64_t>(head) * K;
  if (from.is_vector) {
    constexpr int w = Vec<E>::width;
    constexpr int per_row = S::width / w;
    for (int i = static_cast<int>(threadIdx.x); i < S::tile * per_row; i += attention_threads) {
      const int r = i / per_row, c = i % per_row * w;
      float values[w] = {};
      if (first + r < end && c < K) {
        const auto loaded =
            Vec<E>::load(base + static_cast<int64_t>(first + r) * from.row_stride + c);
#pragma unroll
        for (int e = 0; e < w; ++e) values[e] = load(&loaded.at[e]);
      }
#pragma unroll
      for (int e = 0; e < w; e += 4) {
        *reinterpret_cast<float4*>(to + r * S::pitch + c + e) =
            make_float4(values[e], values[e + 1], values[e + 2], values[e + 3]);
      }
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < S::tile * S::width; i += attention_threads) {
      const int r = i / S::width, c = i % S::width;
      const bool exists = first + r < end && c < K;
      to[r * S::pitch + c] =
          exists ? load(base + static_cast<int64_t>(first + r) * from.row_stride + c) : 0.0F;
    }
  }
}

// to[r] = head `head` of row first + r; zero for rows >= end and columns >= K. All threads call.
template <typename S>
__device__ void load_tile(float* to, const HeadRows& from, int head, int K, int first, int end) {
  if (from.dtype == base::DType::bf16) {
    load_tile_as<S, bf16>(to, from, head, K, first, end);
  } else if (from.dtype == base::DType::f16) {
    load_tile_as<S, f16>(to, from, head, K, first, end);
  } else {
    load_tile_as<S, float>(to, from, head, K, first, end);
  }
}

// d[i][j] += row ty + 16 i of a times row tx + 16 j of b, both [tile, width].
template <typename S>
__device__ void multiply_rows(float (&d)[S::per_thread][S::per_thread], const float* a,
                              const float* b, int ty, int tx) {
#pragma unroll 2
  for (int k = 0; k < S::width; k += 4) {
    Vec<float> x[S::per_thread], y[S::per_thread];
#pragma unroll
    for (int i = 0; i < S::per_thread; ++i) {
      x[i] = Vec<float>::load(a + (ty + attention_side * i) * S::pitch + k);
      y[i] = Vec<float>::load(b + (tx + attention_side * i) * S::pitch + k);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int i = 0; i < S::per_thread; ++i) {
#pragma unroll
        for (int j = 0; j < S::per_thread; ++j) d[i][j] += x[i].at[e] * y[j].at[e];
      }
    }
  }
}

// d[i][c] += row ty + 16 i of pairs [tile, tile] times column c (see TileShape) of b [tile, width].
template <typename S>
__device__ void multiply_pairs(float (&d)[S::per_thread][S::columns], const float* pairs,
                               const float* b, int ty, int tx) {
  constexpr int v = S::vector;
#pragma unroll 2
  for (int j = 0; j < S::tile; j += 4) {
    Vec<float> x[S::per_thread];
#pragma unroll
    for (int i = 0; i < S::per_thread; ++i) {
      x[i] = Vec<float>::load(pairs + (ty + attention_side * i) * S::pair_pitch + j);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int c = 0; c < S::columns; c += v) {
        const auto y =
            *reinterpret_cast<const Floats<v>*>(b + (j + e) * S::pitch + S::column(c, tx));
#pragma unroll
        for (int i = 0; i < S::per_thread; ++i) {
#pragma unroll
          for (int w = 0; w < v; ++w) d[i][c + w] += x[i].at[e] * y.at[w];
        }
      }
    }
  }
}

template <typename S, typename E>
__device__ void store_row_as(const HeadRows& to, int head, int K, int t, int tx,
                             const float (&values)[S::columns], float factor) {
  E* row = static_cast<E*>(to.data) + t * to.row_stride + static_cast<int64_t>(head) * K;
#pragma unroll
  for (int c = 0; c < S::columns; c += S::vector) {
    const int first = S::column(c, tx);
    struct alignas(S::vector * sizeof(E)) Group {
      E at[S::vector];
    } group;
#pragma unroll
    for (int w = 0; w < S::vector; ++w) store(&group.at[w], values[c + w] * factor);
    if (to.is_vector) {
      if (first < K) *reinterpret_cast<Group*>(row + first) = group;
    } else {
#pragma unroll
      for (int w = 0; w < S::vector; ++w) {
        if (first + w < K) row[first + w] = group.at[w];
      }
    }
  }
}

// Columns of thread tx into head `head` of row t, times `factor`. With `accumulates` they are added
// to the row, which is f32.
template <typename S>
__device__ void store_row(const HeadRows& to, int head, int K, int t, int tx,
                          const float (&values)[S::columns], float factor,
                          bool accumulates = false) {
  if (accumulates) {
    float* row = static_cast<float*>(to.data) + t * to.row_stride + static_cast<int64_t>(head) * K;
#pragma unroll
    for (int c = 0; c < S::columns; ++c) {
      const int column = S::column(c, tx);
      if (column < K) row[column] += values[c] * factor;
    }
  } else if (to.dtype == base::DType::bf16) {
    store_row_as<S, bf16>(to, head, K, t, tx, values, factor);
  } else if (to.dtype == base::DType::f16) {
    store_row_as<S, f16>(to, head, K, t, tx, values, factor);
  } else {
    store_row_as<S, float>(to, head, K, t, tx, values, factor);
  }
}

// Loads the ranges of the tile's rows and returns the keys that any of them sees. Rows that do not
// exist see none. All threads call; it ends with a barrier.
template <typename S>
__device__ int2 load_ranges(const AttentionProblem& p, int first, RowKeys (&ranges)[S::tile]) {
  __shared__ int begin, end;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    begin = INT_MAX;
    end = 0;
  }
  __syncthreads();
  if (thread < S::tile) {
    const RowKeys row = first + thread < p.tokens ? p.rows[first + thread] : RowKeys{-1, -1, 0, 0};
    ranges[thread] = row;
    if (row.begin < row.end) {
      atomicMin(&begin, row.begin);
      atomicMax(&end, row.end);
    }
  }
  __syncthreads();
  return {begin, end};
}

// ---- host side

// Calls f with the TileShape for head size K.
template <typename F>
void with_tile_shape(int64_t K, F&& f) {
  if (K <= 32) {
    f(TileShape<32>{});
  } else if (K <= 64) {
    f(TileShape<64>{});
  } else if (K <= 128) {
    f(TileShape<128>{});
  } else {
    f(TileShape<256>{});
  }
}

// One block for each of `heads` heads of each tile of `rows`. More than 48 KiB of shared memory
// must be requested.
template <typename S>
void launch_tiles(void (*kernel)(AttentionProblem), const AttentionProblem& problem, int64_t rows,
                  int64_t heads, int64_t floats, cudaStream_t stream, const char* name) {
  const int64_t blocks = ceil_div(rows, S::tile) * heads;
  TRIREME_CHECK(blocks > 0 && blocks < (int64_t{1} << 31), "{}: {} blocks", name, blocks);
  const int bytes = static_cast<int>(floats * 4);
  device::cuda_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  kernel<<<static_cast<unsigned>(blocks), attention_threads, static_cast<size_t>(bytes), stream>>>(
      problem);
  check_launch(name);
}

}  // namespace trireme::kernels::cuda
