// SPDX-License-Identifier: Apache-2.0
// value = alpha op(a) op(b) + beta d;  d = epilogue(value), as kernels/epilogue.h states.
//
// The result is cut into tiles; a task multiplies one with single-threaded OpenBLAS and applies
// the epilogue while the tile is in cache. fp32 results are multiplied directly into d; other tiles
// go through thread-local memory. Operands in 8 bits are multiplied by their scales before: sums
// are fp32 throughout, also with fast_sums.
#include <cblas.h>

#include <mutex>

#include "kernels/cpu/quantize/operand.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/small_product.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/cpu/vector_math.h"

namespace trireme::kernels::cpu {
namespace {

constexpr int64_t max_tile_rows = 512;
constexpr int64_t max_tile_cols = 768;
static_assert(max_tile_cols <= max_segment);
// Operands that are not fp32 are converted this much of k at a time.
constexpr int64_t max_panel_depth = 512;

struct PanelA;  // tags of thread_floats()
struct PanelB;
struct ResultTile;

struct Tiling {
  int64_t rows = 0, cols = 0;  // of a tile
};

// OpenBLAS copies both operands of a tile, which costs the fraction 8/rows + 12/cols of the
// multiplication (measured on Neoverse-V1, k from 384 to 4096); too few tiles leave threads without
// work. Returns the tile that is best on average over a few numbers of threads: it must not depend
// on the actual number.
Tiling tiling_of(int64_t m, int64_t n) {
  Tiling best;
  double best_cost = 0;
  for (const int64_t rows_wanted : {64, 128, 192, 256, 384, 512}) {
    for (const int64_t cols_wanted : {64, 128, 192, 256, 384, 512, 768}) {
      // Equal parts, whole multiples of the rows and columns that the inner kernel computes at
      // once.
      const int64_t row_parts = divide_up(m, rows_wanted), col_parts = divide_up(n, cols_wanted);
      const int64_t rows = std::min(max_tile_rows, base::round_up(divide_up(m, row_parts), 16));
      const int64_t cols = std::min(max_tile_cols, base::round_up(divide_up(n, col_parts), 16));
      const double tile_cost = static_cast<double>(rows * cols) *
                               (1 + 8 / static_cast<double>(rows) + 12 / static_cast<double>(cols));
      double cost = 0;
      for (const int64_t threads : {1, 2, 4, 8}) {
        const int64_t turns = divide_up(row_parts * col_parts, threads);
        cost += static_cast<double>(turns * threads) * tile_cost;
      }
      if (best.rows == 0 || cost < best_cost) {
        best = {rows, cols};
        best_cost = cost;
      }
    }
  }
  return best;
}

// Part of op(x) for BLAS: rows [r0, r0 + rows) and columns [c0, c0 + cols) as stored, that is
// before op.
struct Panel {
  const float* data;
  int64_t stride;
};

struct Block {
  int64_t r0, rows, c0, cols;
};

template <typename Memory>
Panel panel_of(const Operand& operand, const Block& block) {
  const ConstTensor& x = operand.x;
  if (x.dtype == base::DType::f32) return {floats_at(x, block.r0) + block.c0, x.row_stride};
  float* memory = thread_floats<Memory>(block.rows * block.cols);
  for (int64_t r = 0; r < block.rows; ++r) {
    values_of(operand, {block.r0 + r, block.c0, block.cols}, memory + r * block.cols);
  }
  return {memory, block.cols};
}

Operand operand_a(const GemmArgs& args) { return {args.a, args.scale_a, args.shape_a}; }
Operand operand_b(const GemmArgs& args) { return {args.b, args.scale_b, args.shape_b}; }

void multiply(const GemmArgs& args, const Block& tile, float beta, float* d, int64_t d_stride) {
  const int64_t k = args.trans_a ? args.a.rows() : args.a.cols();
  const bool all_f32 = args.a.dtype == base::DType::f32 && args.b.dtype == base::DType::f32;
  const bool is_small = is_small_product(args.d.rows(), args.d.cols(), k);
  const int64_t depth = all_f32 ? std::max<int64_t>(k, 1) : max_panel_depth;
  int64_t k0 = 0;
  do {
    const int64_t kk = std::min(depth, k - k0);
    const auto a =
        panel_of<PanelA>(operand_a(args), args.trans_a ? Block{k0, kk, tile.r0, tile.rows}
                                                       : Block{tile.r0, tile.rows, k0, kk});
    const auto b =
        panel_of<PanelB>(operand_b(args), args.trans_b ? Block{tile.c0, tile.cols, k0, kk}
                                                       : Block{k0, kk, tile.c0, tile.cols});
    const float beta_now = k0 == 0 ? beta : 1.0F;
    if (is_small) {
      multiply_small({.a = a.data,
                      .b = b.data,
                      .d = d,
                      .a_stride = a.stride,
                      .b_stride = b.stride,
                      .d_stride = d_stride,
                      .m = tile.rows,
                      .n = tile.cols,
                      .k = kk,
                      .trans_a = args.trans_a,
                      .trans_b = args.trans_b,
                      .alpha = args.alpha,
                      .beta = beta_now});
    } else {
      cblas_sgemm(CblasRowMajor, args.trans_a ? CblasTrans : CblasNoTrans,
                  args.trans_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(tile.rows),
                  static_cast<blasint>(tile.cols), static_cast<blasint>(kk), args.alpha, a.data,
                  static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), beta_now,
                  d, static_cast<blasint>(d_stride));
    }
    k0 += kk;
  } while (k0 < k);
}

void add(float* value, const float* x, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) value[i] += x[i];
}

// gelu'(x), rounded to this type.
void slopes_of(const float* x, int64_t count, base::DType dtype, float* slopes) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) slopes[i] = gelu_derivative_of(x[i]);
  if (dtype == base::DType::f32) return;
  with_half_type(dtype, [&]<typename T>(T*) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) slopes[i] = static_cast<float>(T(slopes[i]));
  });
}

void multiply_by(float* value, const float* factors, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) value[i] *= factors[i];
}

// One row of a tile: `value` becomes what d stores. `bias` (null: none) has the tile's columns.
struct Row {
  const GemmArgs& args;
  Segment s;
  const float* bias;
  float* value;
};

void add_bias(const Row& row) {
  if (row.bias != nullptr) add(row.value, row.bias, row.s.count);
}

void gelu_to(const float* x, int64_t count, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = gelu_of(x[i]);
}

void finish(const Row& row, const AddTerms& e) {
  SegmentBuffer buffer;
  add_bias(row);
  if (e.residual) add(row.value, values_of(e.residual, row.s, buffer), row.s.count);
}

void finish(const Row& row, const GeluForward& e) {
  SegmentBuffer buffer;
  add_bias(row);
  store(e.input, row.s, row.value);
  gelu_to(values_of(e.input, row.s, buffer), row.s.count, row.value);
}

void finish(const Row& row, const GeluForwardSlope& e) {
  // The input is rounded as d would be, and the slopes as the gradient would round them.
  SegmentBuffer buffer, slopes;
  add_bias(row);
  store(e.slope, row.s, row.value);
  const float* x = values_of(e.slope, row.s, buffer);
  slopes_of(x, row.s.count, row.args.d.dtype, slopes);
  gelu_to(x, row.s.count, row.value);
  store(e.slope, row.s, slopes);
}

void finish(const Row& row, const GeluGradient& e) {
  SegmentBuffer buffer, slopes;
  const float* x = values_of(e.input, row.s, buffer);
  if (e.gelu) {
    SegmentBuffer results;
    float* y = place_for(e.gelu, row.s, results);
    gelu_to(x, row.s.count, y);
    store(e.gelu, row.s, y);
  }
  slopes_of(x, row.s.count, e.input.dtype, slopes);
  multiply_by(row.value, slopes, row.s.count);
}

void finish(const Row& row, const ScaleBy& e) {
  SegmentBuffer buffer;
  multiply_by(row.value, values_of(e.factor, row.s, buffer), row.s.count);
}

void finish(const Row& /*row*/, const BiasGradient& /*e*/) {}

// The properties of an epilogue that compute_tile() needs.
struct Needs {
  ConstTensor bias = {};
  ConstTensor read = {};  // [m, n]; d may be the same tensor
  bool changes_value = true;
};
Needs needs_of(const AddTerms& e) {
  return {.bias = e.bias, .read = e.residual, .changes_value = e.bias || e.residual};
}
Needs needs_of(const GeluForward& e) { return {.bias = e.bias}; }
Needs needs_of(const GeluForwardSlope& e) { return {.bias = e.bias}; }
Needs needs_of(const GeluGradient& e) { return {.read = e.input}; }
Needs needs_of(const ScaleBy& e) { return {.read = e.factor}; }
Needs needs_of(const BiasGradient& /*e*/) { return {.changes_value = false}; }

void compute_tile(const GemmArgs& args, const Block& tile) {
  const Needs needs = std::visit([](const auto& e) { return needs_of(e); }, args.epilogue);
  const bool in_place = args.d.dtype == base::DType::f32 && args.d.data != needs.read.data;
  float* value = nullptr;
  int64_t stride = 0;
  if (in_place) {
    value = floats_at(args.d, tile.r0) + tile.c0;
    stride = args.d.row_stride;
  } else {
    value = thread_floats<ResultTile>(tile.rows * tile.cols);
    stride = tile.cols;
    for (int64_t r = 0; args.beta != 0 && r < tile.rows; ++r) {
      const Segment s = {tile.r0 + r, tile.c0, tile.cols};
      const float* old = values_of(args.d, s, value + r * stride);
      if (old != value + r * stride) std::copy_n(old, tile.cols, value + r * stride);
    }
  }
  multiply(args, tile, args.beta, value, stride);

  if (in_place && !needs.changes_value) return;
  SegmentBuffer bias_buffer;
  const float* bias = nullptr;
  if (needs.bias) bias = values_of(needs.bias, {0, tile.c0, tile.cols}, bias_buffer);
  for (int64_t r = 0; r < tile.rows; ++r) {
    const Row row = {args, {tile.r0 + r, tile.c0, tile.cols}, bias, value + r * stride};
    std::visit([&row](const auto& e) { finish(row, e); }, args.epilogue);
    store(args.d, row.s, row.value);
  }
}

constexpr int64_t sum_rows_per_task = 64;

// sum += sums of the rows of op(x).
struct RowSums {
  Operand x;
  bool trans = false;
  Tensor sum;
};

// sum[first, first + count) += sums of these rows of op(x), in fp64 in the order of columns.
void add_sums(const RowSums& args, int64_t first, int64_t count) {
  double sums[sum_rows_per_task] = {};
  SegmentBuffer buffer;
  if (args.trans) {
    for (int64_t k = 0; k < args.x.x.rows(); ++k) {
      const float* x = values_of(args.x, {k, first, count}, buffer);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(x[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < args.x.x.cols(); k += max_segment) {
        const Segment s = {first + i, k, std::min(max_segment, args.x.x.cols() - k)};
        const float* x = values_of(args.x, s, buffer);
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < s.count; ++j) sum += static_cast<double>(x[j]);
      }
      sums[i] = sum;
    }
  }
  const Segment s = {0, first, count};
  const float* old = values_of(args.sum, s, buffer);
  float total[sum_rows_per_task];
  for (int64_t i = 0; i < count; ++i) {
    total[i] = static_cast<float>(static_cast<double>(old[i]) + sums[i]);
  }
  store(args.sum, s, total);
}

// Where the sums of d's columns are added; absent if the epilogue has none.
Tensor column_sums_of(const Epilogue& epilogue) {
  if (const auto* gradient = std::get_if<GeluGradient>(&epilogue)) return gradient->d_sum;
  if (const auto* scale = std::get_if<ScaleBy>(&epilogue)) return scale->d_sum;
  return {};
}

void multiply_all(base::ThreadPool& pool, const GemmArgs& args) {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });

  const int64_t m = args.d.rows(), n = args.d.cols();
  if (m == 0 || n == 0) return;
  const Tiling tiling = tiling_of(m, n);
  const int64_t row_parts = divide_up(m, tiling.rows),
                tiles = row_parts * divide_up(n, tiling.cols);
  const auto* bias_gradient = std::get_if<BiasGradient>(&args.epilogue);
  const int64_t sum_tasks = bias_gradient != nullptr ? divide_up(m, sum_rows_per_task) : 0;
  pool.for_each(tiles + sum_tasks, [&](int64_t task) {
    if (task < tiles) {
      const int64_t r0 = task % row_parts * tiling.rows, c0 = task / row_parts * tiling.cols;
      compute_tile(args, {r0, std::min(tiling.rows, m - r0), c0, std::min(tiling.cols, n - c0)});
    } else {
      const int64_t first = (task - tiles) * sum_rows_per_task;
      add_sums({operand_a(args), args.trans_a, bias_gradient->sum}, first,
               std::min(sum_rows_per_task, m - first));
    }
  });
  const Tensor d_sum = column_sums_of(args.epilogue);
  if (!d_sum) return;
  pool.for_each(divide_up(n, sum_rows_per_task), [&](int64_t task) {
    const int64_t first = task * sum_rows_per_task;
    add_sums({{args.d}, true, d_sum}, first, std::min(sum_rows_per_task, n - first));
  });
}

}  // namespace

void gemm(Stream& stream, const GemmArgs& args) { run_on(stream, args, multiply_all); }

}  // namespace trireme::kernels::cpu
