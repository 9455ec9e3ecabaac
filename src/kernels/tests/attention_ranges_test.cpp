// SPDX-License-Identifier: Apache-2.0
// attention_ranges_forward and _backward against the reference and finite differences.
// context_attention_test.cpp has them together, as ranks use them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"
#include "kernels/tests/ranges_rig_test.h"

namespace trireme::kernels::attention_ranges_test {
namespace {

struct Problem {
  std::string name = {};
  std::vector<RowRange> ranges = {};
  int64_t keys = 0;
  HeadCounts heads = {};
  DType dtype = DType::f32;
  DType result = DType::f32;  // of o, dq, dk and dv
  bool accumulates = false;
  std::vector<QueryChunk> chunks = {};

  int64_t rows() const { return static_cast<int64_t>(ranges.size()); }
  float scale() const { return 1 / std::sqrt(static_cast<float>(heads.size)); }
  int64_t longest() const {
    int32_t length = 1;
    for (const RowRange& r : ranges) length = std::max(length, r.end - r.begin);
    return length;
  }
};

// Query rows [0, rows) of a causal square that ends at key `end`.
std::vector<RowRange> diagonal(int64_t rows, int32_t begin, int32_t end) {
  std::vector<RowRange> ranges;
  for (int64_t i = 0; i < rows; ++i) {
    ranges.push_back({begin, end - static_cast<int32_t>(rows - 1 - i)});
  }
  return ranges;
}

std::vector<RowRange> joined(std::vector<RowRange> a, const std::vector<RowRange>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Any ranges at all, also empty and reversed ones.
std::vector<RowRange> random_ranges(int64_t rows, int32_t keys, uint64_t seed) {
  const base::RngKey key = base::rng_key(seed, "ranges");
  std::vector<RowRange> ranges;
  for (uint64_t i = 0; i < static_cast<uint64_t>(rows); ++i) {
    const auto bound = static_cast<uint64_t>(keys) + 1;
    ranges.push_back({static_cast<int32_t>(base::rng_below(key, 2 * i, bound)),
                      static_cast<int32_t>(base::rng_below(key, 2 * i + 1, bound))});
  }
  return ranges;
}

struct Inputs {
  Tensor q, k, v;
  Tensor key_begin, key_end;
};

// k and v are parts of wider rows, as the projection and a gather write them.
Inputs inputs_of(const Problem& p, Operands& operands) {
  const auto [H, G, K] = p.heads;
  const Tensor q = operands.input({p.rows(), H, K}, {.dtype = p.dtype, .gap = 8});
  const Tensor kv = operands.input({p.keys, 2 * G * K}, {.dtype = p.dtype, .gap = 8});
  return {q, kv.slice_heads(0, G, K), kv.slice_heads(G * K, G, K),
          operands.integers(begins_of(p.ranges)), operands.integers(ends_of(p.ranges))};
}

AttentionRangesForwardArgs forward_args(const Problem& p, const Inputs& in, const Tensor& o,
                                        const Tensor& lse) {
  return {.q = in.q,
          .k = in.k,
          .v = in.v,
          .key_begin = in.key_begin,
          .key_end = in.key_end,
          .chunks = p.chunks,
          .pairs = pairs_of(p.ranges),
          .scale = p.scale(),
          .o = o,
          .lse = lse};
}

void forward(const Problem& p, Operands& operands, Stream& stream) {
  const auto [H, G, K] = p.heads;
  const Inputs in = inputs_of(p, operands);
  const Tensor o = operands.result({p.rows(), H, K}, {.dtype = p.result,
                                                      .gap = 8,
                                                      .terms = p.longest(),
                                                      .floor = 1,
                                                      .from_half = p.dtype != DType::f32});
  const Tensor lse = operands.result({H, p.rows()}, {.terms = p.longest(), .floor = 1});
  ops::attention_ranges_forward(stream, forward_args(p, in, o, lse));
}

void backward(const Problem& p, Operands& operands, Stream& stream) {
  const auto [H, G, K] = p.heads;
  const Inputs in = inputs_of(p, operands);
  const Tensor o = operands.input({p.rows(), H, K}, {.dtype = p.dtype});
  const Tensor lse = operands.input({H, p.rows()});
  operands.prepare([&](Stream& reference) {
    ops::attention_ranges_forward(reference, forward_args(p, in, o, lse));
  });
  // A query that sees one key has the gradient of a constant: terms of size one that cancel.
  const Make make = {.dtype = p.result,
                     .gap = 8,
                     .terms = p.rows() * H / G + p.longest() + K,
                     .floor = 1,
                     .from_half = p.dtype != DType::f32};
  const auto gradient = [&](const Shape& shape) {
    return p.accumulates ? operands.updated(shape, make) : operands.result(shape, make);
  };
  ops::attention_ranges_backward(
      stream, {.q = in.q,
               .k = in.k,
               .v = in.v,
               .o = o,
               .dout = operands.input({p.rows(), H, K}, {.dtype = p.dtype, .gap = 8}),
               .lse = lse,
               .key_begin = in.key_begin,
               .key_end = in.key_end,
               .chunks = p.chunks,
               .pairs = pairs_of(p.ranges),
               .scale = p.scale(),
               .dq = gradient({p.rows(), H, K}),
               .dk = gradient({p.keys, G, K}),
               .dv = gradient({p.keys, G, K}),
               .accumulates = p.accumulates,
               .workspace = ranges_workspace({p.dtype, p.result, p.rows(), p.keys, p.heads},
                                             operands, stream)});
}

std::vector<Problem> problems() {
  std::vector<Problem> list;
  const auto add = [&](Problem p) {
    for (const HeadCounts& heads : {HeadCounts{2, 2, 64}, {4, 2, 8}, {6, 2, 7}, {2, 1, 128}}) {
      p.heads = heads;
      for (const auto& [dtype, result] : {std::pair{DType::f32, DType::f32},
                                          {DType::bf16, DType::bf16},
                                          {DType::bf16, DType::f32}}) {
        p.dtype = dtype;
        p.result = result;
        p.accumulates = false;
        list.push_back(p);
        p.accumulates = true;
        if (result == DType::f32) list.push_back(p);
      }
    }
  };
  add({.name = "one row, one key", .ranges = {{0, 1}}, .keys = 1});
  add({.name = "rows without keys", .ranges = {{0, 0}, {3, 2}, {5, 5}}, .keys = 5});
  add({.name = "lengths 0 and 1", .ranges = {{0, 0}, {4, 5}, {2, 2}, {0, 1}, {4, 5}}, .keys = 5});
  add({.name = "zig-zag chunks",
       .ranges = joined(diagonal(32, 0, 64), diagonal(32, 0, 96)),
       .keys = 128,
       .chunks = {{0, 32, 0, 64, true}, {32, 32, 0, 96, true}}});
  add({.name = "a ring step",
       .ranges = joined(std::vector<RowRange>(20, {0, 0}), std::vector<RowRange>(50, {0, 70})),
       .keys = 70,
       .chunks = {{0, 20, 0, 0, false}, {20, 50, 0, 70, false}}});
  add({.name = "two documents",
       .ranges = joined(diagonal(60, 0, 60), diagonal(75, 60, 135)),
       .keys = 140});
  return list;
}

std::vector<Case> cases(void (*op)(const Problem&, Operands&, Stream&)) {
  std::vector<Case> list;
  const auto add = [&](const Problem& p) {
    list.push_back({fmt::format("{}, heads {}/{} of {}, {} to {}{}", p.name, p.heads.query,
                                p.heads.key, p.heads.size, base::name_of(p.dtype),
                                base::name_of(p.result), p.accumulates ? ", accumulated" : ""),
                    [=](Operands& o, Stream& s) { op(p, o, s); }});
  };
  for (const Problem& p : problems()) add(p);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const auto rows = static_cast<int64_t>(10 + 37 * seed);
    const int32_t keys = 5 + 31 * static_cast<int32_t>(seed);
    add({.name = fmt::format("random ranges {}", seed),
         .ranges = random_ranges(rows, keys, seed),
         .keys = keys,
         .heads = {4, 2, 12},
         .accumulates = seed % 2 == 0});
  }
  return list;
}

TEST(AttentionRangesTest, cpu_forward_agrees_with_the_reference) {
  expect_cpu_agrees(cases(forward));
}

TEST(AttentionRangesTest, cpu_backward_agrees_with_the_reference) {
  expect_cpu_agrees(cases(backward));
}

TEST(AttentionRangesTest, cuda_forward_agrees_with_the_reference) {
  expect_cuda_agrees(cases(forward));
}

TEST(AttentionRangesTest, cuda_backward_agrees_with_the_reference) {
  expect_cuda_agrees(cases(backward));
}

// Long columns of tiles that add to the same keys, few heads, ranges in any order.
TEST(AttentionRangesTest, bits_do_not_depend_on_threads) {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const HeadCounts& heads : {HeadCounts{1, 1, 8}, {4, 2, 8}}) {
      for (const auto& ranges :
           {diagonal(500, 0, 500), std::vector<RowRange>(300, {10, 450}),
            joined(diagonal(150, 200, 350), diagonal(150, 0, 200)), random_ranges(90, 500, 1)}) {
        const Problem p = {
            .ranges = ranges, .keys = 500, .heads = heads, .dtype = dtype, .result = dtype};
        list.push_back({"forward", [=](Operands& o, Stream& s) { forward(p, o, s); }});
        list.push_back({"backward", [=](Operands& o, Stream& s) { backward(p, o, s); }});
      }
    }
  }
  expect_bits_do_not_depend_on_threads(list);
}

TEST(AttentionRangesTest, everything_has_the_gradient_of_finite_differences) {
  Machine machine(reference_kernels());
  const Kernels& table = machine.device.kernels();
  const auto [H, G, K] = HeadCounts{4, 2, 3};
  const std::vector<RowRange> ranges = {{0, 3}, {2, 2}, {1, 6}, {5, 6}, {4, 1}};
  const auto T = static_cast<int64_t>(ranges.size());
  const int64_t N = 6;
  Operands indices(1);
  const Tensor begin = indices.integers(begins_of(ranges)), end = indices.integers(ends_of(ranges));
  Reals q({T, H, K}, 1), k({N, G, K}, 2), v({N, G, K}, 3), weights({T, H, K}, 4);
  Reals o({T, H, K}), lse({H, T});
  const auto loss = [&] {
    table.attention_ranges_forward(*machine.stream, {.q = q.tensor,
                                                     .k = k.tensor,
                                                     .v = v.tensor,
                                                     .key_begin = begin,
                                                     .key_end = end,
                                                     .scale = 0.5F,
                                                     .o = o.tensor,
                                                     .lse = lse.tensor});
    return inner(weights, o);
  };
  loss();
  Reals dq({T, H, K}), dk({N, G, K}), dv({N, G, K});
  table.attention_ranges_backward(*machine.stream, {.q = q.tensor,
                                                    .k = k.tensor,
                                                    .v = v.tensor,
                                                    .o = o.tensor,
                                                    .dout = weights.tensor,
                                                    .lse = lse.tensor,
                                                    .key_begin = begin,
                                                    .key_end = end,
                                                    .scale = 0.5F,
                                                    .dq = dq.tensor,
                                                    .dk = dk.tensor,
                                                    .dv = dv.tensor});
  expect_gradient("q", q, dq, loss);
  expect_gradient("k", k, dk, loss);
  expect_gradient("v", v, dv, loss);
}

// Rows without keys have zeros and -infinity, also beside rows with keys, and no NaN spreads.
TEST(AttentionRangesTest, rows_without_keys_have_zeros) {
  for_each_machine([](Machine& machine) {
    const Problem p = {.ranges = {{0, 0}, {0, 2}, {2, 1}, {1, 3}}, .keys = 3, .heads = {2, 1, 8}};
    Operands operands(1, machine);
    const Inputs in = inputs_of(p, operands);
    const Tensor o = operands.result({4, 2, 8}), lse = operands.result({2, 4});
    ops::attention_ranges_forward(*machine.stream, forward_args(p, in, o, lse));
    machine.stream->synchronize();
    const std::vector<double> values = values_of(o), sums = values_of(lse);
    for (size_t t = 0; t < 4; ++t) {
      const bool is_empty = t % 2 == 0;
      for (size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(values[t * 16 + i] == 0, is_empty) << "row " << t;
        EXPECT_TRUE(std::isfinite(values[t * 16 + i])) << "row " << t;
      }
      for (size_t h = 0; h < 2; ++h) {
        EXPECT_EQ(sums[h * 4 + t] == -std::numeric_limits<double>::infinity(), is_empty);
        EXPECT_FALSE(std::isnan(sums[h * 4 + t]));
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::attention_ranges_test
