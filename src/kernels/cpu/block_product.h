// SPDX-License-Identifier: Apache-2.0
// Products of small fp32 blocks that lie in cache: the inner loops of attention. Blocks are made of
// 8 x 8 cells, whose 16 vectors of sums stay in registers. Sizes and ranges are multiples of 8.
// Every element is summed in the order of the inner index, independent of its cell.
#pragma once

#include <cstdint>

namespace trireme::kernels::cpu {

constexpr int64_t cell = 8;

struct InnerRange {
  int64_t begin = 0, end = 0;
};

// Row-major fp32 memory; rows are `stride` floats apart.
struct ConstBlock {
  const float* data = nullptr;
  int64_t stride = 0;

  const float* at(int64_t row, int64_t col) const { return data + row * stride + col; }
};
struct MutableBlock {
  float* data = nullptr;
  int64_t stride = 0;

  float* at(int64_t row, int64_t col) const { return data + row * stride + col; }
  operator ConstBlock() const { return {data, stride}; }  // NOLINT(google-explicit-constructor)
};

enum class Into : uint8_t { set, add };

using Lanes = float __attribute__((vector_size(16)));
// The same at any float in memory.
using LanesInMemory = float __attribute__((vector_size(16), aligned(4), may_alias));

inline Lanes load_lanes(const float* from) { return *reinterpret_cast<const LanesInMemory*>(from); }
inline void store_lanes(float* to, Lanes lanes) { *reinterpret_cast<LanesInMemory*>(to) = lanes; }
template <int lane>
Lanes broadcast(Lanes x) {
  return __builtin_shufflevector(x, x, lane, lane, lane, lane);
}

// The sums of one cell.
template <Into into>
struct CellSums {
  explicit CellSums(float* cell_of_d, int64_t d_stride) : d(cell_of_d), stride(d_stride) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < cell; ++r) {
      sums[r][0] = into == Into::add ? load_lanes(d + r * stride) : Lanes{};
      sums[r][1] = into == Into::add ? load_lanes(d + r * stride + 4) : Lanes{};
    }
  }
  void store() const {
#pragma GCC unroll 8
    for (int64_t r = 0; r < cell; ++r) {
      store_lanes(d + r * stride, sums[r][0]);
      store_lanes(d + r * stride + 4, sums[r][1]);
    }
  }

  float* d;
  int64_t stride;
  Lanes sums[cell][2];
};

// Adds column `lane` of eight rows of a (four columns of them are loaded) times one row of b.
template <int lane, Into into>
void add_column(CellSums<into>& d, const Lanes (&a)[cell], const float* b) {
  const Lanes b0 = load_lanes(b), b1 = load_lanes(b + 4);
#pragma GCC unroll 8
  for (int64_t r = 0; r < cell; ++r) {
    const Lanes x = broadcast<lane>(a[r]);
    d.sums[r][0] += x * b0;
    d.sums[r][1] += x * b1;
  }
}

// One cell of d: sum over k of a[r, k] b[k, c].
template <Into into>
[[gnu::noinline]] void multiply_cell(const float* a, int64_t a_stride, const float* b,
                                     int64_t b_stride, int64_t depth, float* d, int64_t d_stride) {
  CellSums<into> sums(d, d_stride);
  for (int64_t k = 0; k < depth; k += 4) {
    Lanes rows[cell];
#pragma GCC unroll 8
    for (int64_t r = 0; r < cell; ++r) rows[r] = load_lanes(a + r * a_stride + k);
    add_column<0>(sums, rows, b + k * b_stride);
    add_column<1>(sums, rows, b + (k + 1) * b_stride);
    add_column<2>(sums, rows, b + (k + 2) * b_stride);
    add_column<3>(sums, rows, b + (k + 3) * b_stride);
  }
  sums.store();
}

template <int lane, Into into>
void add_row_of_transposed(CellSums<into>& d, int64_t first_row, Lanes a, Lanes b0, Lanes b1) {
  const Lanes x = broadcast<lane>(a);
  d.sums[first_row + lane][0] += x * b0;
  d.sums[first_row + lane][1] += x * b1;
}

// One cell of d: sum over k of a[k, r] b[k, c].
template <Into into>
[[gnu::always_inline]] inline void multiply_transposed_cell(const float* a, int64_t a_stride,
                                                            const float* b, int64_t b_stride,
                                                            int64_t depth, float* d,
                                                            int64_t d_stride) {
  CellSums<into> sums(d, d_stride);
  for (int64_t k = 0; k < depth; ++k) {
    const Lanes b0 = load_lanes(b + k * b_stride), b1 = load_lanes(b + k * b_stride + 4);
#pragma GCC unroll 2
    for (int64_t half = 0; half < 2; ++half) {
      const Lanes x = load_lanes(a + k * a_stride + 4 * half);
      add_row_of_transposed<0>(sums, 4 * half, x, b0, b1);
      add_row_of_transposed<1>(sums, 4 * half, x, b0, b1);
      add_row_of_transposed<2>(sums, 4 * half, x, b0, b1);
      add_row_of_transposed<3>(sums, 4 * half, x, b0, b1);
    }
  }
  sums.store();
}

// Rows [row, row + 8) and columns `cols` of d = (or +=) a b, with the inner index in `inner`.
template <Into into>
void multiply_rows(const ConstBlock& a, const ConstBlock& b, const MutableBlock& d, int64_t row,
                   const InnerRange& cols, const InnerRange& inner) {
  const float* a_rows = a.at(row, inner.begin);
  for (int64_t c = cols.begin; c < cols.end; c += cell) {
    multiply_cell<into>(a_rows, a.stride, b.at(inner.begin, c), b.stride, inner.end - inner.begin,
                        d.at(row, c), d.stride);
  }
}

// Rows [row, row + 8) and columns `cols` of d += a^T b, with the inner index in `inner`.
inline void add_transposed_rows(const ConstBlock& a, const ConstBlock& b, const MutableBlock& d,
                                int64_t row, const InnerRange& cols, const InnerRange& inner) {
  const float* a_columns = a.at(inner.begin, row);
  for (int64_t c = cols.begin; c < cols.end; c += cell) {
    multiply_transposed_cell<Into::add>(a_columns, a.stride, b.at(inner.begin, c), b.stride,
                                        inner.end - inner.begin, d.at(row, c), d.stride);
  }
}

}  // namespace trireme::kernels::cpu
