// SPDX-License-Identifier: Apache-2.0
// gate | up = x[r] weight[g]^T, act = row_weight silu(gate) up, and its backward. All three ops
// compute act by the same function from the stored gate and up.
#include "kernels/cpu/quantize/amax.h"
#include "kernels/cpu/experts/groups.h"
#include "kernels/cpu/segment.h"
#include "kernels/cpu/table_ops.h"
#include "kernels/cpu/vector_math.h"

namespace trireme::kernels::cpu {
namespace {

[[gnu::noinline]] void weighted_swiglu(const float* gate, const float* up, float row_weight,
                                       float* act, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float s = gate[i] * sigmoid_of(gate[i]).value * up[i];
    act[i] = row_weight * s;
  }
}

float row_weight_at(const ConstTensor& row_weight, int64_t row) {
  return *floats_at(row_weight, row);
}

// act of a segment, from gate and up as they are stored.
void activate(const ConstTensor& gate_up, const ConstTensor& row_weight, const Segment& s,
              const Tensor& act, const Tensor& amax) {
  SegmentBuffer gates, ups, results;
  const float* gate = values_of(gate_up, s, gates);
  const float* up = values_of(gate_up, {s.row, act.cols() + s.first, s.count}, ups);
  float* y = place_for(act, s, results);
  weighted_swiglu(gate, up, row_weight_at(row_weight, s.row), y, s.count);
  store(act, s, y);
  raise_by(amax, act, s);
}

void forward_groups(base::ThreadPool& pool, const GroupedSwigluForwardArgs& args) {
  const int64_t F = args.act.cols();
  const auto compute = [&](const GroupRows& part, int64_t col, int64_t count) {
    const MatrixProduct product = {rows_of(args.x, args.scales, part.first),
                                   matrix_of(args.weight, args.scales, part.group, true),
                                   args.x.cols()};
    const TileValues values = multiply_tile(
        product, {.rows = part.rows, .col = col, .cols = count, .parts = 2, .part_stride = F});
    for (int64_t r = 0; r < part.rows; ++r) {
      const Segment s = {part.first + r, col, count};
      store(args.gate_up, s, values.at(r, 0));
      store(args.gate_up, {s.row, F + col, count}, values.at(r, 1));
      activate(args.gate_up, args.row_weight, s, args.act, args.amax);
    }
  };
  for_each_group_tile(pool, args.starts, F, max_group_tile_cols / 2, compute);
}

// Gradients of a segment, from v, the gradient of act. Returns the sum of v silu(gate) up.
//   silu'(x) = s (1 + x (1 - s)), s = sigmoid(x).
[[gnu::noinline]] double swiglu_gradient(const GroupedSwigluBackwardArgs& args, const Segment& s,
                                         const float* v) {
  const Segment up_segment = {s.row, args.gate_up.cols() / 2 + s.first, s.count};
  const float weight = row_weight_at(args.row_weight, s.row);
  SegmentBuffer gates, ups, dgates, dups;
  const float* gate = values_of(args.gate_up, s, gates);
  const float* up = values_of(args.gate_up, up_segment, ups);
  float* dgate = place_for(args.dgate_up, s, dgates);
  float* dup = place_for(args.dgate_up, up_segment, dups);
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < s.count; ++i) {
    const float x = gate[i], u = up[i], grad = weight * v[i];
    const Sigmoid sigmoid = sigmoid_of(x);
    sum += static_cast<double>(v[i]) * static_cast<double>(x * sigmoid.value * u);
    dgate[i] = grad * u * sigmoid.value * (1.0F + x * sigmoid.complement);
    dup[i] = grad * x * sigmoid.value;
  }
  store(args.dgate_up, s, dgate);
  store(args.dgate_up, up_segment, dup);
  raise_by(args.amax, args.dgate_up, s);
  raise_by(args.amax, args.dgate_up, up_segment);
  return sum;
}

// A task computes whole rows, since dweight is a sum over all columns: in tiles of columns, each in
// fp64, in order.
void backward_groups(base::ThreadPool& pool, const GroupedSwigluBackwardArgs& args) {
  const int64_t F = args.gate_up.cols() / 2;
  const auto compute = [&](const GroupRows& part, int64_t /*col*/, int64_t /*count*/) {
    const MatrixProduct product = {rows_of(args.dy, args.scales, part.first),
                                   matrix_of(args.weight, args.scales, part.group, false),
                                   args.dy.cols()};
    double sums[max_group_tile_rows] = {};
    for (int64_t col = 0; col < F; col += max_group_tile_cols) {
      const int64_t count = std::min(max_group_tile_cols, F - col);
      const TileValues v = multiply_tile(product, {.rows = part.rows, .col = col, .cols = count});
      for (int64_t r = 0; r < part.rows; ++r) {
        const Segment s = {part.first + r, col, count};
        // Before gate and up may be overwritten.
        if (args.act) activate(args.gate_up, args.row_weight, s, args.act, {});
        sums[r] += swiglu_gradient(args, s, v.at(r));
      }
    }
    for (int64_t r = 0; r < part.rows; ++r) {
      *floats_at(args.dweight, part.first + r) = static_cast<float>(sums[r]);
    }
  };
  for_each_group_tile(pool, args.starts, F, F, compute);
}

}  // namespace

void grouped_swiglu_forward(Stream& stream, const GroupedSwigluForwardArgs& args) {
  run_on(stream, args, forward_groups);
}

void grouped_swiglu(Stream& stream, const GroupedSwigluArgs& args) {
  run_on(stream, args, [](base::ThreadPool& pool, const GroupedSwigluArgs& a) {
    for_each_segment(pool, {index_at(a.end, 0), a.act.cols()}, [&](const Segment& s) {
      activate(a.gate_up, a.row_weight, s, a.act, a.amax);
    });
  });
}

void grouped_swiglu_backward(Stream& stream, const GroupedSwigluBackwardArgs& args) {
  run_on(stream, args, backward_groups);
}

}  // namespace trireme::kernels::cpu
