// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows against the reference, and what they promise about bits.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/ops.h"
#include "kernels/tests/experts/groups_rig_test.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::experts_products_test {
namespace {

struct Problem {
  Groups groups;
  int64_t N, D;  // of an expert's matrix; N is F of SwiGLU
  DType dtype = DType::f32;
};

// Two bf16 numbers that are neighbours differ by up to 2^-7. Where act is computed from a rounded
// product, the bound of a sum of this many terms is 1e-2 of the largest element.
constexpr int64_t twice_rounded = 100'000'000;

int64_t terms_of_rounded(DType dtype, int64_t terms) {
  return dtype != DType::f32 ? twice_rounded : terms;
}

void forward(const Problem& p, Operands& o, Stream& stream) {
  const Tensor x = rows_input(o, p.groups, {p.groups.rows(), p.D}, {p.dtype, 8}, 1);
  const Tensor weight = o.input({p.groups.count(), p.N, p.D}, {p.dtype});
  const Tensor y =
      rows_result(o, {p.groups.rows(), p.N}, {.dtype = p.dtype, .gap = 16, .terms = p.D});
  ops::grouped_forward(stream, {.x = x,
                                .weight = weight,
                                .starts = o.integers(p.groups.starts()),
                                .y = y,
                                .rows = p.groups.pairs()});
}

void backward_input(const Problem& p, Operands& o, Stream& stream) {
  const Tensor dy = rows_input(o, p.groups, {p.groups.rows(), p.N}, {p.dtype, 8}, 2);
  const Tensor weight = o.input({p.groups.count(), p.N, p.D}, {p.dtype});
  const Tensor dx =
      rows_result(o, {p.groups.rows(), p.D}, {.dtype = p.dtype, .gap = 8, .terms = p.N});
  ops::grouped_backward_input(stream, {.dy = dy,
                                       .weight = weight,
                                       .starts = o.integers(p.groups.starts()),
                                       .dx = dx,
                                       .rows = p.groups.pairs()});
}

void backward_weight(const Problem& p, DType grad, bool adds, Operands& o, Stream& stream) {
  const Tensor dy = rows_input(o, p.groups, {p.groups.rows(), p.N}, {p.dtype, 8}, 3);
  const Tensor x = rows_input(o, p.groups, {p.groups.rows(), p.D}, {p.dtype, 16}, 4);
  const Make make = {
      .dtype = grad, .terms = p.groups.rows(), .floor = 1, .from_half = p.dtype != DType::f32};
  const Shape shape = {p.groups.count(), p.N, p.D};
  const Tensor dweight = adds ? o.updated(shape, make) : o.result(shape, make);
  ops::grouped_backward_weight(stream, {.dy = dy,
                                        .x = x,
                                        .starts = o.integers(p.groups.starts()),
                                        .dweight = dweight,
                                        .adds = adds,
                                        .rows = p.groups.pairs()});
}

void swiglu_forward(const Problem& p, Operands& o, Stream& stream) {
  const int64_t rows = p.groups.rows(), F = p.N;
  const Tensor x = rows_input(o, p.groups, {rows, p.D}, {p.dtype, 8}, 5);
  const Tensor weight = o.input({p.groups.count(), 2 * F, p.D}, {.dtype = p.dtype, .size = 0.1F});
  const Tensor row_weight = rows_input(o, p.groups, {rows}, {}, 6);
  const Make make = {.dtype = p.dtype, .gap = 8, .terms = p.D};
  const Tensor gate_up = rows_result(o, {rows, 2 * F}, make);
  const Tensor act = rows_result(
      o, {rows, F}, {.dtype = p.dtype, .gap = 16, .terms = terms_of_rounded(p.dtype, 4 * p.D)});
  ops::grouped_swiglu_forward(stream, {.x = x,
                                       .weight = weight,
                                       .starts = o.integers(p.groups.starts()),
                                       .row_weight = row_weight,
                                       .gate_up = gate_up,
                                       .act = act,
                                       .rows = p.groups.pairs()});
}

void swiglu(const Problem& p, Operands& o, Stream& stream) {
  const int64_t rows = p.groups.rows(), F = p.N;
  const Tensor gate_up = rows_input(o, p.groups, {rows, 2 * F}, {p.dtype, 8}, 7);
  const Tensor act = rows_result(o, {rows, F}, {.dtype = p.dtype, .gap = 16});
  ops::grouped_swiglu(stream, {.gate_up = gate_up,
                               .row_weight = rows_input(o, p.groups, {rows}, {}, 8),
                               .end = o.integers({static_cast<int32_t>(p.groups.end())}),
                               .act = act,
                               .rows = p.groups.pairs()});
}

void swiglu_backward(const Problem& p, bool has_act, Operands& o, Stream& stream) {
  const int64_t rows = p.groups.rows(), F = p.N;
  const bool is_half = p.dtype != DType::f32;
  const Tensor dy = rows_input(o, p.groups, {rows, p.D}, {p.dtype, 8}, 9);
  const Tensor weight = o.input({p.groups.count(), p.D, F}, {.dtype = p.dtype, .size = 0.1F});
  const Tensor gate_up = rows_input(o, p.groups, {rows, 2 * F}, {p.dtype, 8}, 10);
  const Tensor row_weight = rows_input(o, p.groups, {rows}, {}, 11);
  const Tensor dgate_up =
      rows_result(o, {rows, 2 * F}, {.dtype = p.dtype, .gap = 16, .terms = 4 * p.D});
  const Tensor dweight =
      rows_result(o, {rows}, {.terms = 4 * p.D + F, .floor = 1, .from_half = is_half});
  const Tensor act = rows_result(o, {rows, F}, {.dtype = p.dtype});
  ops::grouped_swiglu_backward(stream, {.dy = dy,
                                        .weight = weight,
                                        .starts = o.integers(p.groups.starts()),
                                        .gate_up = gate_up,
                                        .row_weight = row_weight,
                                        .dgate_up = dgate_up,
                                        .dweight = dweight,
                                        .act = has_act ? act : Tensor{},
                                        .rows = p.groups.pairs()});
}

// Every op with random, skewed and empty groups.
std::vector<Case> cases(int64_t tile) {
  std::vector<Case> list;
  const std::vector<std::vector<int64_t>> loads = {
      {1}, {0}, {37}, {3, 0, 11, 5}, {0, 0, 64, 0}, {130, 1, 0, 260}, {0, 5, 6, 4, 10, 9, 1, 2}};
  struct Size {
    int64_t N, D;
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& load : loads) {
      for (const Size& size : {Size{1, 1}, {5, 17}, {33, 24}, {72, 40}}) {
        const Problem p = {{load, tile, 3 * tile}, size.N, size.D, dtype};
        const auto add = [&](const char* op, std::function<void(Operands&, Stream&)> run) {
          list.push_back({fmt::format("{} {} x {} {} {}", op, size.N, size.D, base::name_of(dtype),
                                      p.groups.name()),
                          std::move(run)});
        };
        add("forward", [=](Operands& o, Stream& s) { forward(p, o, s); });
        add("backward_input", [=](Operands& o, Stream& s) { backward_input(p, o, s); });
        for (const bool flag : {false, true}) {
          const DType grad = flag ? DType::f32 : dtype;
          add("backward_weight",
              [=](Operands& o, Stream& s) { backward_weight(p, grad, flag, o, s); });
          add("swiglu_backward", [=](Operands& o, Stream& s) { swiglu_backward(p, flag, o, s); });
        }
        add("swiglu_forward", [=](Operands& o, Stream& s) { swiglu_forward(p, o, s); });
        add("swiglu", [=](Operands& o, Stream& s) { swiglu(p, o, s); });
      }
    }
  }
  return list;
}

// Sizes with several tiles of rows, columns and depth.
std::vector<Case> large_cases(int64_t tile) {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Problem p = {{{300, 0, 17}, tile, tile}, 280, 536, dtype};
    const Problem wide = {{{9, 250}, tile, tile}, 536, 280, dtype};
    list.push_back({"forward", [=](Operands& o, Stream& s) { forward(p, o, s); }});
    list.push_back({"backward_input", [=](Operands& o, Stream& s) { backward_input(wide, o, s); }});
    list.push_back({"backward_weight",
                    [=](Operands& o, Stream& s) { backward_weight(p, DType::f32, true, o, s); }});
    list.push_back({"swiglu_forward", [=](Operands& o, Stream& s) { swiglu_forward(p, o, s); }});
    list.push_back(
        {"swiglu_backward", [=](Operands& o, Stream& s) { swiglu_backward(wide, true, o, s); }});
  }
  return list;
}

TEST(ExpertsProductsTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(cases(1)); }
TEST(ExpertsProductsTest, cpu_agrees_on_padded_groups) { expect_cpu_agrees(cases(16)); }
TEST(ExpertsProductsTest, cpu_agrees_on_large_products) { expect_cpu_agrees(large_cases(1)); }
TEST(ExpertsProductsTest, cuda_agrees_with_the_reference) {
  expect_cuda_agrees(cases(tile_of(cuda_kernels())));
}
TEST(ExpertsProductsTest, cuda_agrees_on_large_products) {
  expect_cuda_agrees(large_cases(tile_of(cuda_kernels())));
}
TEST(ExpertsProductsTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(large_cases(1));
}

// ---- a row has the same bits in every group

// One row among others: `before` rows of group 0, then `first` rows of group 1, the row, and
// others up to `size` rows.
struct Place {
  int64_t before, first, size;
};

struct RowResults {
  std::vector<double> y, dx, gate_up, act, dgate_up, dweight, act_again, act_alone;
  bool operator==(const RowResults&) const = default;
};

RowResults results_of_row(Machine& machine, const Place& place, DType dtype) {
  constexpr int64_t D = 200, F = 264;
  const Groups groups = {{place.before, place.size}, tile_of(machine.device.kernels()), 0};
  const int64_t row = groups.starts()[1] + place.first, rows = groups.rows();
  Operands o(13, machine);
  const base::RngKey key = base::rng_key(21, "row");
  // The row is always the same; other rows depend on the place.
  const auto filled = [&](const Shape& shape, DType type) {
    return o.input(shape, {.dtype = type}, [&](int64_t r, int64_t c) {
      if (!groups.has_pair(r)) return 0.0;
      const int64_t id = r == row ? 0 : 1 + r + place.size;
      return static_cast<double>(base::rng_normal(key, static_cast<uint64_t>(id * 1000 + c), 1));
    });
  };
  const auto matrix = [&](const Shape& shape) {  // of group 1; group 0 has another one
    return o.input(shape, {.dtype = dtype}, [&](int64_t g, int64_t i) {
      return static_cast<double>(
          base::rng_normal(key, static_cast<uint64_t>((2 + g) * 1'000'000 + i), 0.1F));
    });
  };
  const Tensor x = filled({rows, D}, dtype), dy = filled({rows, F}, dtype);
  const Tensor weights = filled({rows}, DType::f32);
  const Tensor w_up = matrix({2, F, D}), w_gate_up = matrix({2, 2 * F, D}),
               w_down = matrix({2, D, F});
  const Tensor starts = o.integers(groups.starts());
  const Tensor end = o.integers({static_cast<int32_t>(groups.end())});
  const Make make = {.dtype = dtype};
  const Tensor y = o.result({rows, F}, make), dx = o.result({rows, D}, make);
  const Tensor gate_up = o.result({rows, 2 * F}, make), act = o.result({rows, F}, make);
  const Tensor dgate_up = o.result({rows, 2 * F}, make), dweight = o.result({rows}, {});
  const Tensor act_again = o.result({rows, F}, make), act_alone = o.result({rows, F}, make);
  Stream& stream = *machine.stream;
  ops::grouped_forward(stream, {.x = x, .weight = w_up, .starts = starts, .y = y});
  ops::grouped_backward_input(stream, {.dy = dy, .weight = w_up, .starts = starts, .dx = dx});
  ops::grouped_swiglu_forward(stream, {.x = x,
                                       .weight = w_gate_up,
                                       .starts = starts,
                                       .row_weight = weights,
                                       .gate_up = gate_up,
                                       .act = act});
  ops::grouped_swiglu_backward(stream, {.dy = x,
                                        .weight = w_down,
                                        .starts = starts,
                                        .gate_up = gate_up,
                                        .row_weight = weights,
                                        .dgate_up = dgate_up,
                                        .dweight = dweight,
                                        .act = act_again});
  ops::grouped_swiglu(stream,
                      {.gate_up = gate_up, .row_weight = weights, .end = end, .act = act_alone});
  stream.synchronize();
  const auto of_row = [&](const Tensor& t) { return values_of(t.slice_rows(row, 1)); };
  return {of_row(y),        of_row(dx),      of_row(gate_up),   of_row(act),
          of_row(dgate_up), of_row(dweight), of_row(act_again), of_row(act_alone)};
}

TEST(ExpertsProductsTest, a_row_has_the_same_bits_in_every_group) {
  for_each_machine([](Machine& machine) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const RowResults alone = results_of_row(machine, {0, 0, 1}, dtype);
      EXPECT_EQ(alone.act, alone.act_again);
      EXPECT_EQ(alone.act, alone.act_alone);
      for (const Place& place : {Place{1, 0, 2},
                                 {0, 1, 2},
                                 {5, 2, 3},
                                 {0, 3, 7},
                                 {3, 6, 7},
                                 {17, 63, 64},
                                 {64, 31, 64},
                                 {2, 299, 300},
                                 {9, 130, 300}}) {
        SCOPED_TRACE(fmt::format("{} rows before, row {} of {}, {}", place.before, place.first,
                                 place.size, base::name_of(dtype)));
        EXPECT_TRUE(results_of_row(machine, place, dtype) == alone);
      }
    }
  });
}

TEST(ExpertsProductsTest, dgate_up_may_be_gate_up) {
  for_each_machine([](Machine& machine) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Groups groups = {{70, 9}, tile_of(machine.device.kernels()), 0};
      const int64_t rows = groups.rows(), D = 24, F = 40;
      Operands o(17, machine);
      const Tensor dy = rows_input(o, groups, {rows, D}, {dtype}, 1);
      const Tensor weight = o.input({2, D, F}, {dtype});
      const Tensor gate_up = rows_input(o, groups, {rows, 2 * F}, {dtype}, 2);
      const Tensor in_place = o.result({rows, 2 * F}, {dtype});
      const Tensor row_weight = rows_input(o, groups, {rows}, {}, 3);
      const Tensor apart = o.result({rows, 2 * F}, {dtype});
      const Tensor act = o.result({rows, F}, {dtype}), act_2 = o.result({rows, F}, {dtype});
      const Tensor dweight = o.result({rows}), dweight_2 = o.result({rows});
      std::memcpy(in_place.data, gate_up.data, static_cast<size_t>(gate_up.bytes()));
      GroupedSwigluBackwardArgs args = {.dy = dy,
                                        .weight = weight,
                                        .starts = o.integers(groups.starts()),
                                        .gate_up = gate_up,
                                        .row_weight = row_weight,
                                        .dgate_up = apart,
                                        .dweight = dweight,
                                        .act = act};
      ops::grouped_swiglu_backward(*machine.stream, args);
      args.gate_up = in_place;
      args.dgate_up = in_place;
      args.dweight = dweight_2;
      args.act = act_2;
      ops::grouped_swiglu_backward(*machine.stream, args);
      machine.stream->synchronize();
      EXPECT_TRUE(values_of(apart) == values_of(in_place));
      EXPECT_TRUE(values_of(act) == values_of(act_2));
      EXPECT_TRUE(values_of(dweight) == values_of(dweight_2));
    }
  });
}

TEST(ExpertsProductsTest, a_group_without_rows_gives_zeros_or_keeps_its_sum) {
  for_each_machine([](Machine& machine) {
    for (const bool adds : {false, true}) {
      const Groups groups = {{0, 4, 0}, tile_of(machine.device.kernels()), 0};
      Operands o(19, machine);
      const Tensor dy = rows_input(o, groups, {groups.rows(), 6}, {}, 1);
      const Tensor x = rows_input(o, groups, {groups.rows(), 9}, {}, 2);
      const Tensor dweight = adds ? o.updated({3, 6, 9}) : o.result({3, 6, 9});
      const std::vector<double> before = values_of(dweight);
      ops::grouped_backward_weight(*machine.stream, {.dy = dy,
                                                     .x = x,
                                                     .starts = o.integers(groups.starts()),
                                                     .dweight = dweight,
                                                     .adds = adds});
      machine.stream->synchronize();
      const std::vector<double> after = values_of(dweight);
      for (size_t i = 0; i < after.size(); ++i) {
        if (i >= 54 && i < 108) continue;  // of the group with rows
        EXPECT_EQ(after[i], adds ? before[i] : 0) << "element " << i;
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::experts_products_test
