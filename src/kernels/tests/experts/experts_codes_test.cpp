// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows in 8 bits against the reference, which multiplies the same codes and
// scales in fp64, and what they promise about bits and largest magnitudes.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/tests/experts/codes_rig_test.h"

namespace trireme::kernels::experts_codes_test {
namespace {

struct Problem {
  Groups groups;
  int64_t N, D;  // of an expert's matrix; N is F of SwiGLU
  ScaleShape rows = ScaleShape::tensor;
  DType result = DType::bf16;
  bool fast_sums = false;

  Coded activation() const { return {DType::f8e4m3, rows}; }
  Coded gradient() const {
    return {rows == ScaleShape::tensor ? DType::f8e5m2 : DType::f8e4m3, rows};
  }
  ScaleShape weights() const {
    return rows == ScaleShape::tensor ? ScaleShape::tensor : ScaleShape::block_128;
  }
  GroupedScales scales(const Codes& a, const Codes& weight) const {
    return {a.scale, weight.scale, rows, weights(), fast_sums};
  }
  // Tensor cores keep fewer bits of a sum than fp32 has.
  Make make(int64_t terms, int64_t gap = 0) const {
    return {.dtype = result, .gap = gap, .terms = terms, .from_half = true};
  }
};

// Two bf16 numbers that are neighbours differ by up to 2^-7. Where a result is computed from a
// rounded one, the bound of a sum of this many terms is 1e-2 of the largest element.
constexpr int64_t twice_rounded = 100'000'000;

// A largest magnitude that an op raises, of rounded values.
Tensor no_amax(Operands& o) {
  const Tensor amax = o.result({1}, {.terms = twice_rounded, .from_half = true});
  std::memset(amax.data, 0, sizeof(float));
  return amax;
}

void forward(const Problem& p, Operands& o, Stream& stream) {
  const Codes x = coded_rows(o, p.groups, p.D, p.activation(), 1).rows;
  const Codes weight = coded_weights(o, p.groups.count(), p.N, p.D, p.weights());
  ops::grouped_forward(stream, {.x = x.codes,
                                .weight = weight.codes,
                                .starts = o.integers(p.groups.starts()),
                                .y = rows_result(o, {p.groups.rows(), p.N}, p.make(p.D, 16)),
                                .rows = p.groups.pairs(),
                                .scales = p.scales(x, weight)});
}

void backward_input(const Problem& p, Operands& o, Stream& stream) {
  const Codes dy = coded_rows(o, p.groups, p.N, p.gradient(), 2).rows;
  const Codes weight = coded_weights(o, p.groups.count(), p.D, p.N, p.weights());
  ops::grouped_backward_input(stream, {.dy = dy.codes,
                                       .weight = weight.codes,
                                       .starts = o.integers(p.groups.starts()),
                                       .dx = rows_result(o, {p.groups.rows(), p.D}, p.make(p.N, 8)),
                                       .rows = p.groups.pairs(),
                                       .scales = p.scales(dy, weight)});
}

void backward_weight(const Problem& p, DType grad, bool adds, Operands& o, Stream& stream) {
  const Codes dy = coded_rows(o, p.groups, p.N, p.gradient(), 3).columns;
  const Codes x = coded_rows(o, p.groups, p.D, p.activation(), 4).columns;
  const Make make = {.dtype = grad, .terms = p.groups.rows(), .floor = 1, .from_half = true};
  const Shape shape = {p.groups.count(), p.N, p.D};
  ops::grouped_backward_weight(stream,
                               {.dy = dy.codes,
                                .x = x.codes,
                                .starts = o.integers(p.groups.starts()),
                                .dweight = adds ? o.updated(shape, make) : o.result(shape, make),
                                .adds = adds,
                                .rows = p.groups.pairs(),
                                .scales = {dy.scale, x.scale, p.rows, p.rows, false}});
}

void swiglu_forward(const Problem& p, Operands& o, Stream& stream) {
  const int64_t rows = p.groups.rows(), F = p.N;
  const Codes x = coded_rows(o, p.groups, p.D, p.activation(), 5).rows;
  const Codes weight = coded_weights(o, p.groups.count(), 2 * F, p.D, p.weights());
  const Tensor row_weight = rows_input(o, p.groups, {rows}, {}, 6);
  const Tensor amax = no_amax(o);
  ops::grouped_swiglu_forward(stream, {.x = x.codes,
                                       .weight = weight.codes,
                                       .starts = o.integers(p.groups.starts()),
                                       .row_weight = row_weight,
                                       .gate_up = rows_result(o, {rows, 2 * F}, p.make(p.D, 8)),
                                       .act = rows_result(o, {rows, F}, p.make(twice_rounded, 16)),
                                       .rows = p.groups.pairs(),
                                       .scales = p.scales(x, weight),
                                       .amax = amax});
}

void swiglu_backward(const Problem& p, bool has_act, Operands& o, Stream& stream) {
  const int64_t rows = p.groups.rows(), F = p.N;
  const Codes dy = coded_rows(o, p.groups, p.D, p.gradient(), 9).rows;
  const Codes weight = coded_weights(o, p.groups.count(), F, p.D, p.weights());
  const Tensor gate_up = rows_input(o, p.groups, {rows, 2 * F}, {p.result, 8}, 10);
  const Tensor row_weight = rows_input(o, p.groups, {rows}, {}, 11);
  const Tensor amax = no_amax(o);
  const Tensor act = rows_result(o, {rows, F}, {.dtype = p.result});
  ops::grouped_swiglu_backward(
      stream,
      {.dy = dy.codes,
       .weight = weight.codes,
       .starts = o.integers(p.groups.starts()),
       .gate_up = gate_up,
       .row_weight = row_weight,
       .dgate_up = rows_result(o, {rows, 2 * F}, p.make(4 * p.D, 16)),
       .dweight = rows_result(o, {rows}, {.terms = 4 * p.D + F, .floor = 1, .from_half = true}),
       .act = has_act ? act : Tensor{},
       .rows = p.groups.pairs(),
       .scales = p.scales(dy, weight),
       .dact = o.scratch({rows, F}, p.result),
       .amax = amax});
}

void add_cases(std::vector<Case>& list, const Problem& p) {
  const auto add = [&](const char* op, std::function<void(Operands&, Stream&)> run) {
    list.push_back({fmt::format("{} {} x {} {} {} {}", op, p.N, p.D,
                                p.rows == ScaleShape::tensor ? "tensor" : "block",
                                base::name_of(p.result), p.groups.name()),
                    std::move(run)});
  };
  add("forward", [=](Operands& o, Stream& s) { forward(p, o, s); });
  add("backward_input", [=](Operands& o, Stream& s) { backward_input(p, o, s); });
  add("swiglu_forward", [=](Operands& o, Stream& s) { swiglu_forward(p, o, s); });
  for (const bool flag : {false, true}) {
    add("backward_weight",
        [=](Operands& o, Stream& s) { backward_weight(p, p.result, flag, o, s); });
    add("swiglu_backward", [=](Operands& o, Stream& s) { swiglu_backward(p, flag, o, s); });
  }
}

// Every op with random, skewed and empty groups. Blocks of scales need groups in tiles of 128.
std::vector<Case> cases(int64_t tile) {
  struct Size {
    int64_t N, D;
  };
  std::vector<Case> list;
  for (const auto& load : std::vector<std::vector<int64_t>>{{1}, {0}, {3, 0, 11, 5}, {130, 1, 0}}) {
    for (const Size& size : {Size{1, 1}, {5, 17}, {72, 40}}) {
      add_cases(list, {{load, tile, 2 * tile}, size.N, size.D});
    }
    add_cases(list, {{load, 128, 128}, 40, 24, ScaleShape::row_128});
  }
  add_cases(list, {{{9, 40}, tile, tile}, 33, 150, ScaleShape::tensor, DType::f32});
  add_cases(list, {{{9, 40}, 128, 128}, 33, 150, ScaleShape::row_128, DType::f32});
  return list;
}

// Sizes with several tiles of rows, columns and depth, and of several blocks of scales.
std::vector<Case> large_cases(int64_t tile) {
  std::vector<Case> list;
  const Groups groups = {{140, 0, 17}, std::max<int64_t>(tile, 128), 128};
  add_cases(list, {groups, 144, 272, ScaleShape::tensor, DType::bf16, true});
  add_cases(list, {groups, 128, 256, ScaleShape::row_128});
  return list;
}

TEST(ExpertsCodesTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(cases(1)); }
TEST(ExpertsCodesTest, cpu_agrees_on_large_products) { expect_cpu_agrees(large_cases(1)); }
TEST(ExpertsCodesTest, cuda_agrees_with_the_reference) {
  expect_cuda_agrees(cases(tile_of(cuda_kernels())));
}
TEST(ExpertsCodesTest, cuda_agrees_on_large_products) {
  expect_cuda_agrees(large_cases(tile_of(cuda_kernels())));
}
TEST(ExpertsCodesTest, bits_do_not_depend_on_threads) {
  std::vector<Case> list;
  add_cases(list, {{{140, 0, 17}, 128, 128}, 64, 160, ScaleShape::row_128});
  expect_bits_do_not_depend_on_threads(list);
}

// ---- accuracy: fp32 results against fp64 of the same operands, in relative L2

double relative_distance(const std::vector<double>& x, const std::vector<double>& reference) {
  double error = 0, sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - reference[i]) * (x[i] - reference[i]);
    sum += reference[i] * reference[i];
  }
  return std::sqrt(error / sum);
}

TEST(ExpertsCodesTest, sums_of_gradients_are_accurate) {
  constexpr double bound = 2e-4;
  for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::row_128}) {
    std::vector<std::vector<double>> all;
    for_each_machine([&](Machine& machine) {
      Operands o(5, machine);
      const Problem p = {{{700, 300}, 128, 0}, 128, 64, shape, DType::f32};
      const Codes dy = coded_rows(o, p.groups, p.N, p.gradient(), 3).columns;
      const Codes x = coded_rows(o, p.groups, p.D, p.activation(), 4).columns;
      const Tensor dweight = o.result({2, p.N, p.D});
      ops::grouped_backward_weight(*machine.stream,
                                   {.dy = dy.codes,
                                    .x = x.codes,
                                    .starts = o.integers(p.groups.starts()),
                                    .dweight = dweight,
                                    .scales = {dy.scale, x.scale, shape, shape, false}});
      machine.stream->synchronize();
      all.push_back(values_of(dweight));
    });
    for (const std::vector<double>& values : all) {
      EXPECT_LE(relative_distance(values, all[0]), bound);
    }
  }
}

// ---- a row has the same bits in every group

// One row among others: `before` rows of group 0, then `first` rows of group 1, the row, and
// others up to `size` rows.
struct Place {
  int64_t before, first, size;
};

std::vector<std::vector<double>> results_of_row(Machine& machine, const Place& place,
                                                ScaleShape shape) {
  constexpr int64_t D = 144, F = 160;
  const Problem p = {{{place.before, place.size}, 128, 0}, F, D, shape};
  const int64_t row = p.groups.starts()[1] + place.first, rows = p.groups.rows();
  Operands o(13, machine);
  const base::RngKey key = base::rng_key(21, "row");
  // The row is always the same; other rows depend on the place. All have the same largest
  // magnitude, so that they have the same scale.
  const auto filled = [&](int64_t cols, const Coded& coded) {
    const Tensor x = o.input({rows, cols}, {.dtype = DType::bf16}, [&](int64_t r, int64_t c) {
      if (!p.groups.has_pair(r)) return 0.0;
      const int64_t id = r == row ? 0 : 1 + r + place.size;
      const float value = base::rng_normal(key, static_cast<uint64_t>(id * 1000 + c), 1);
      return static_cast<double>(std::clamp(value, -2.0F, c == 0 ? 2.0F : 1.5F));
    });
    const Codes codes = {o.scratch({rows, cols}, coded.format),
                         scales_for(o, coded.shape, rows, cols)};
    const bool is_tensor = coded.shape == ScaleShape::tensor;
    const Tensor amax =
        is_tensor ? o.input({1}, {}, [](int64_t, int64_t) { return 2.0; }) : Tensor{};
    o.prepare([&](Stream& stream) {
      ops::quantize(stream, {.x = x,
                             .rows = codes.codes,
                             .rows_scale = codes.scale,
                             .shape = coded.shape,
                             .amax = amax});
    });
    return codes;
  };
  const Codes x = filled(D, p.activation()), dy = filled(F, p.gradient());
  const Codes down_gradient = filled(D, p.gradient());
  const Codes up = coded_weights(o, 2, 2 * F, D, p.weights());
  const Codes transposed = coded_weights(o, 2, D, F, p.weights());
  const Codes down = coded_weights(o, 2, F, D, p.weights());
  const Tensor row_weight = o.input({rows}, {}, [](int64_t, int64_t) { return 0.75; });
  const Tensor starts = o.integers(p.groups.starts());
  const Make make = {.dtype = DType::bf16};
  const Tensor y = o.result({rows, 2 * F}, make), dx = o.result({rows, D}, make);
  const Tensor gate_up = o.result({rows, 2 * F}, make), act = o.result({rows, F}, make);
  const Tensor dgate_up = o.result({rows, 2 * F}, make), act_again = o.result({rows, F}, make);
  const Tensor dweight = o.result({rows}, {});
  Stream& stream = *machine.stream;
  ops::grouped_forward(
      stream,
      {.x = x.codes, .weight = up.codes, .starts = starts, .y = y, .scales = p.scales(x, up)});
  ops::grouped_backward_input(stream, {.dy = dy.codes,
                                       .weight = transposed.codes,
                                       .starts = starts,
                                       .dx = dx,
                                       .scales = p.scales(dy, transposed)});
  ops::grouped_swiglu_forward(stream, {.x = x.codes,
                                       .weight = up.codes,
                                       .starts = starts,
                                       .row_weight = row_weight,
                                       .gate_up = gate_up,
                                       .act = act,
                                       .scales = p.scales(x, up)});
  ops::grouped_swiglu_backward(stream, {.dy = down_gradient.codes,
                                        .weight = down.codes,
                                        .starts = starts,
                                        .gate_up = gate_up,
                                        .row_weight = row_weight,
                                        .dgate_up = dgate_up,
                                        .dweight = dweight,
                                        .act = act_again,
                                        .scales = p.scales(down_gradient, down),
                                        .dact = o.scratch({rows, F}, DType::bf16)});
  stream.synchronize();
  std::vector<std::vector<double>> results;
  for (const Tensor& t : {y, dx, gate_up, act, dgate_up, dweight, act_again}) {
    results.push_back(values_of(t.slice_rows(row, 1)));
  }
  EXPECT_EQ(results[0], results[2]) << "the product with an activation differs from the plain one";
  EXPECT_EQ(results[3], results[6]) << "the activation of the backward differs";
  return results;
}

TEST(ExpertsCodesTest, a_row_has_the_same_bits_in_every_group) {
  for_each_machine([](Machine& machine) {
    for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::row_128}) {
      const auto alone = results_of_row(machine, {0, 0, 1}, shape);
      for (const Place& place : {Place{1, 0, 2}, {5, 2, 3}, {17, 63, 64}, {9, 130, 200}}) {
        SCOPED_TRACE(
            fmt::format("{} rows before, row {} of {}", place.before, place.first, place.size));
        EXPECT_TRUE(results_of_row(machine, place, shape) == alone);
      }
    }
  });
}

// ---- largest magnitudes are those of the stored values, and never fall

TEST(ExpertsCodesTest, amax_is_that_of_the_stored_values) {
  for_each_machine([](Machine& machine) {
    for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::row_128}) {
      Operands o(3, machine);
      const Problem p = {{{140, 0, 9}, 128, 128}, 256, 128, shape};
      const int64_t rows = p.groups.rows(), F = p.N;
      const Codes x = coded_rows(o, p.groups, p.D, p.activation(), 5).rows;
      const Codes dy = coded_rows(o, p.groups, p.D, p.gradient(), 6).rows;
      const Codes up = coded_weights(o, 3, 2 * F, p.D, p.weights());
      const Codes down = coded_weights(o, 3, F, p.D, p.weights());
      const Tensor starts = o.integers(p.groups.starts());
      const Tensor end = starts.slice_rows(3, 1);
      const Tensor row_weight = rows_input(o, p.groups, {rows}, {}, 7);
      const Make make = {.dtype = DType::bf16};
      const Tensor gate_up = o.result({rows, 2 * F}, make), act = o.result({rows, F}, make);
      const Tensor act_alone = o.result({rows, F}, make), dgate_up = o.result({rows, 2 * F}, make);
      const Tensor amax = o.result({4});
      auto* largest = reinterpret_cast<float*>(amax.data);
      std::fill_n(largest, 3, 0.0F);
      largest[3] = 1e9F;
      Stream& stream = *machine.stream;
      GroupedSwigluForwardArgs args = {.x = x.codes,
                                       .weight = up.codes,
                                       .starts = starts,
                                       .row_weight = row_weight,
                                       .gate_up = gate_up,
                                       .act = act,
                                       .scales = p.scales(x, up),
                                       .amax = amax.slice_rows(0, 1)};
      ops::grouped_swiglu_forward(stream, args);
      args.amax = amax.slice_rows(3, 1);
      ops::grouped_swiglu_forward(stream, args);
      ops::grouped_swiglu(stream, {.gate_up = gate_up,
                                   .row_weight = row_weight,
                                   .end = end,
                                   .act = act_alone,
                                   .amax = amax.slice_rows(1, 1)});
      ops::grouped_swiglu_backward(stream, {.dy = dy.codes,
                                            .weight = down.codes,
                                            .starts = starts,
                                            .gate_up = gate_up,
                                            .row_weight = row_weight,
                                            .dgate_up = dgate_up,
                                            .dweight = o.result({rows}, {}),
                                            .scales = p.scales(dy, down),
                                            .dact = o.scratch({rows, F}, DType::bf16),
                                            .amax = amax.slice_rows(2, 1)});
      stream.synchronize();
      const auto largest_of = [&](const Tensor& t) {
        double value = 0;
        for (const double v : values_of(t.slice_rows(0, p.groups.end()))) {
          value = std::max(value, std::abs(v));
        }
        return static_cast<float>(value);
      };
      EXPECT_EQ(largest[0], largest_of(act));
      EXPECT_EQ(largest[1], largest_of(act_alone));
      EXPECT_EQ(largest[2], largest_of(dgate_up));
      EXPECT_EQ(largest[3], 1e9F);
      EXPECT_GT(largest[0], 0);
      EXPECT_GT(largest[2], 0);
    }
  });
}

// ---- rows after the end are not quantised

TEST(ExpertsCodesTest, rows_after_the_end_are_neither_read_nor_written) {
  for_each_machine([](Machine& machine) {
    for (const ScaleShape shape : {ScaleShape::tensor, ScaleShape::row_128}) {
      Operands o(7, machine);
      const Groups groups = {{100, 20}, 128, 128};
      const int64_t rows = groups.rows(), cols = 144;
      const Tensor x = rows_input(o, groups, {rows, cols}, {.dtype = DType::bf16}, 1);
      const Tensor end = o.integers({static_cast<int32_t>(groups.end())});
      const Tensor amax = o.result({1}), counts = o.scratch({sizeof(QuantizeCounts)}, DType::u8);
      const Codes by_rows = {o.scratch({rows, cols}, DType::f8e4m3),
                             scales_for(o, shape, rows, cols)};
      const Codes by_columns = {o.scratch({cols, rows}, DType::f8e4m3),
                                scales_for(o, shape, cols, rows)};
      std::memset(amax.data, 0, sizeof(float));
      std::memset(counts.data, 0, sizeof(QuantizeCounts));
      std::memset(by_rows.codes.data, 0x11, static_cast<size_t>(by_rows.codes.bytes()));
      std::memset(by_columns.codes.data, 0x11, static_cast<size_t>(by_columns.codes.bytes()));
      ops::amax(*machine.stream, {.x = x, .amax = amax, .end = end});
      ops::quantize(*machine.stream, {.x = x,
                                      .rows = by_rows.codes,
                                      .columns = by_columns.codes,
                                      .rows_scale = by_rows.scale,
                                      .columns_scale = by_columns.scale,
                                      .shape = shape,
                                      .amax = shape == ScaleShape::tensor ? amax : Tensor{},
                                      .counts = counts,
                                      .measures = true,
                                      .end = end});
      machine.stream->synchronize();
      EXPECT_TRUE(std::isfinite(*reinterpret_cast<const float*>(amax.data)));
      QuantizeCounts found;
      std::memcpy(&found, counts.data, sizeof found);
      EXPECT_EQ(found.values, groups.end() * cols);
      EXPECT_TRUE(std::isfinite(found.signal) && std::isfinite(found.noise));
      const auto code = [](const Tensor& t, int64_t r, int64_t c) {
        return reinterpret_cast<const uint8_t*>(t.data)[r * t.row_stride + c];
      };
      for (int64_t r = groups.end(); r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(code(by_rows.codes, r, c), 0x11) << "row " << r;
          ASSERT_EQ(code(by_columns.codes, c, r), 0x11) << "row " << r;
        }
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::experts_codes_test
