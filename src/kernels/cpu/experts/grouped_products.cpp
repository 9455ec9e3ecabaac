// SPDX-License-Identifier: Apache-2.0
// y[r] = x[r] weight[g]^T;  dx[r] = dy[r] weight[g];  dweight[g] = dy[g]^T x[g] (+ dweight[g]).
#include "kernels/cpu/experts/groups.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"

namespace trireme::kernels::cpu {
namespace {

// A product of rows with matrices, or with transposed ones.
struct RowProducts {
  ConstTensor x, weight, starts;
  const GroupedScales& scales;
  bool transposes = false;
  Tensor y;
};

void multiply_groups(base::ThreadPool& pool, const RowProducts& p) {
  const int64_t cols = p.y.cols();
  const auto compute = [&](const GroupRows& part, int64_t col, int64_t count) {
    const MatrixProduct product = {rows_of(p.x, p.scales, part.first),
                                   matrix_of(p.weight, p.scales, part.group, p.transposes),
                                   p.x.cols()};
    const TileValues values =
        multiply_tile(product, {.rows = part.rows, .col = col, .cols = count});
    for (int64_t r = 0; r < part.rows; ++r) store(p.y, {part.first + r, col, count}, values.at(r));
  };
  for_each_group_tile(pool, p.starts, cols, max_group_tile_cols, compute);
}

constexpr int64_t gradient_tile_rows = 160;

void sum_weight_gradients(base::ThreadPool& pool, const GroupedBackwardWeightArgs& args) {
  const int64_t N = args.dweight.shape[1], D = args.dweight.shape[2];
  const int64_t row_parts = divide_up(N, gradient_tile_rows);
  const int64_t col_parts = divide_up(D, max_group_tile_cols);
  pool.for_each(groups_of(args.starts) * row_parts * col_parts, [&](int64_t task) {
    const int64_t g = task / (row_parts * col_parts), in_group = task % (row_parts * col_parts);
    const int64_t n0 = in_group / col_parts * gradient_tile_rows;
    const int64_t d0 = in_group % col_parts * max_group_tile_cols;
    const int64_t rows = std::min(gradient_tile_rows, N - n0);
    const int64_t cols = std::min(max_group_tile_cols, D - d0);
    const int64_t first = index_at(args.starts, g), end = index_at(args.starts, g + 1);
    if (args.adds && first == end) return;
    const GroupedScales& scales = args.scales;
    const MatrixProduct product =
        scales.a
            ? MatrixProduct{columns_of(args.dy, scales.a, scales.shape_a, first, false),
                            columns_of(args.x, scales.b, scales.shape_b, first, true), end - first}
            : MatrixProduct{rows_of(args.dy, first, true), rows_of(args.x, first, false),
                            end - first};
    const TileValues values =
        multiply_tile(product, {.row = n0, .rows = rows, .col = d0, .cols = cols});
    SegmentBuffer buffer;
    for (int64_t r = 0; r < rows; ++r) {
      // A row of the tensor is a whole matrix.
      const Segment s = {g, (n0 + r) * D + d0, cols};
      float* sums = values.at(r);
      if (args.adds) {
        const float* old = values_of(args.dweight, s, buffer);
#pragma omp simd
        for (int64_t i = 0; i < cols; ++i) sums[i] += old[i];
      }
      store(args.dweight, s, sums);
    }
  });
}

}  // namespace

void grouped_forward(Stream& stream, const GroupedForwardArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const GroupedForwardArgs& a) {
    multiply_groups(pool, {a.x, a.weight, a.starts, a.scales, true, a.y});
  });
}

void grouped_backward_input(Stream& stream, const GroupedBackwardInputArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const GroupedBackwardInputArgs& a) {
    multiply_groups(pool, {a.dy, a.weight, a.starts, a.scales, false, a.dx});
  });
}

void grouped_backward_weight(Stream& stream, const GroupedBackwardWeightArgs& args) {
  run_on(stream, args, sum_weight_gradients);
}

}  // namespace trireme::kernels::cpu
