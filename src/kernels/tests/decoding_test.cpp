// SPDX-License-Identifier: Apache-2.0
// row_product, scatter_rows and attention_cached: against the reference, and that a row of the
// results does not depend on the other rows.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"
#include "spec/facts/backend.h"

namespace trireme::kernels::decoding_test {
namespace {

// ---- row_product

struct Product {
  int64_t rows, depth, cols;
  DType dtype = DType::f32;
  bool has_terms = false;  // bias and residual
  bool f32_result = false;
  int64_t gap = 0;
};

void product(const Product& p, Operands& operands, Stream& stream) {
  const Make in = {.dtype = p.dtype, .gap = p.gap};
  const DType out = p.f32_result ? DType::f32 : p.dtype;
  // Products of normal elements have size sqrt(depth).
  const double size = std::sqrt(static_cast<double>(p.depth));
  RowProductArgs args{.x = operands.input({p.rows, p.depth}, in),
                      .weight = operands.input({p.cols, p.depth}, in),
                      .y = {}};
  if (p.has_terms) {
    args.bias = operands.input({p.cols}, {.dtype = p.dtype});
    args.residual = operands.input({p.rows, p.cols}, {.dtype = out, .gap = p.gap});
  }
  args.y = operands.result({p.rows, p.cols},
                           {.dtype = out, .gap = p.gap, .terms = p.depth, .floor = size});
  ops::row_product(stream, args);
}

std::vector<Case> products() {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t rows : {1, 2, 3, 5, 8, 13}) {
      for (const auto& [depth, cols] :
           {std::pair<int64_t, int64_t>{1, 1}, {7, 5}, {64, 96}, {40, 3}, {72, 1030}, {776, 130}}) {
        for (const bool has_terms : {false, true}) {
          const Product p = {rows, depth, cols, dtype, has_terms, depth == 64, depth == 40 ? 3 : 0};
          list.push_back({fmt::format("{} x {} x {} {}{}", rows, depth, cols, base::name_of(dtype),
                                      has_terms ? " with terms" : ""),
                          [=](Operands& o, Stream& s) { product(p, o, s); }});
        }
      }
    }
  }
  return list;
}

TEST(RowProductTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(products()); }
TEST(RowProductTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(products()); }
TEST(RowProductTest, bits_do_not_depend_on_threads) {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Product p = {3, 200, 1030, dtype, true};
    list.push_back({"product", [=](Operands& o, Stream& s) { product(p, o, s); }});
  }
  expect_bits_do_not_depend_on_threads(list);
}

TEST(RowProductTest, the_result_may_be_the_residual) {
  for_each_machine([](Machine& machine) {
    Operands operands(3, machine);
    const Tensor x = operands.input({2, 24}), weight = operands.input({12, 24});
    const Tensor y = operands.updated({2, 12}), residual = operands.input({2, 12});
    const std::vector<double> before = values_of(y);
    std::memcpy(residual.data, y.data, static_cast<size_t>(y.bytes()));
    const Tensor expected = operands.result({2, 12});
    ops::row_product(*machine.stream,
                     {.x = x, .weight = weight, .residual = residual, .y = expected});
    ops::row_product(*machine.stream, {.x = x, .weight = weight, .residual = y, .y = y});
    machine.stream->synchronize();
    EXPECT_EQ(values_of(y), values_of(expected));
    EXPECT_NE(values_of(y), before);
  });
}

TEST(RowProductTest, a_row_does_not_depend_on_the_others) {
  for_each_machine([](Machine& machine) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t depth : {52, 1024}) {
        constexpr int64_t rows = 17, cols = 70;
        Operands operands(5, machine);
        const Tensor x = operands.input({rows, depth}, {.dtype = dtype});
        const Tensor weight = operands.input({cols, depth}, {.dtype = dtype});
        const Tensor all = operands.result({rows, cols});
        ops::row_product(*machine.stream, {.x = x, .weight = weight, .y = all});
        for (const int64_t count : {1, 2, 3, 7, 8}) {
          for (int64_t first = 0; first + count <= rows; first += 5) {
            const Tensor some = operands.result({count, cols});
            ops::row_product(*machine.stream,
                             {.x = x.slice_rows(first, count), .weight = weight, .y = some});
            machine.stream->synchronize();
            EXPECT_EQ(values_of(some), values_of(all.slice_rows(first, count)))
                << count << " rows from " << first << ", " << base::name_of(dtype);
          }
        }
      }
    }
  });
}

// ---- scatter_rows

void scatter(DType dtype, int64_t cols, Operands& operands, Stream& stream) {
  ScatterRowsArgs args{.x = operands.input({5, cols}, {.dtype = dtype, .gap = 8}),
                       .rows = operands.integers({3, -1, 0, 6, 2}),
                       .d = {}};
  args.d = operands.updated({7, cols}, {.dtype = dtype, .gap = 16, .exact = true});
  ops::scatter_rows(stream, args);
}

std::vector<Case> scatters() {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t cols : {1, 7, 64, 2048}) {
      list.push_back({fmt::format("{} columns of {}", cols, base::name_of(dtype)),
                      [=](Operands& o, Stream& s) { scatter(dtype, cols, o, s); }});
    }
  }
  return list;
}

TEST(ScatterRowsTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(scatters()); }
TEST(ScatterRowsTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(scatters()); }

// ---- attention_cached

struct Cached {
  std::vector<int32_t> first_rows, lengths;  // of the queries
  int64_t heads, kv_heads, head_dim;
  DType dtype = DType::f32;
  int64_t capacity = 40;  // rows of a sequence

  int64_t rows() const { return static_cast<int64_t>(lengths.size()); }
};

Tensor workspace_for(const Cached& p, Operands& operands, Stream& stream) {
  const bool is_cuda = &stream.device().kernels() == &cuda_kernels();
  const base::TensorSpec workspace = spec::attention_cached_workspace(
      is_cuda ? spec::cuda_backend(true) : spec::cpu_backend(),
      {.rows = p.rows(), .heads = p.heads, .head_dim = p.head_dim, .max_length = p.capacity});
  // All tables have the same number of operands, so that they can be compared.
  const bool is_absent = workspace.shape.ndim() == 0;
  const Tensor scratch = operands.scratch(is_absent ? Shape{1} : workspace.shape, DType::f32);
  return is_absent ? Tensor{} : scratch;
}

Tensor attention(const Cached& p, Operands& operands, Stream& stream) {
  const int64_t T = p.rows(), K = p.head_dim;
  const int64_t qkv = (p.heads + 2 * p.kv_heads) * K;
  // Queries are part of a fused projection.
  const Tensor fused = operands.input({T, qkv}, {.dtype = p.dtype});
  AttentionCachedArgs args{
      .q = fused.slice_heads(0, p.heads, K),
      .cache = operands.input({3 * p.capacity, 2 * p.kv_heads, K}, {.dtype = p.dtype}),
      .first_rows = operands.integers(p.first_rows),
      .lengths = operands.integers(p.lengths),
      .max_length = p.capacity,
      .scale = 1 / std::sqrt(static_cast<float>(K)),
      .o = {}};
  args.o = operands.result({T, p.heads, K}, {.dtype = p.dtype, .gap = 8, .terms = p.capacity});
  args.workspace = workspace_for(p, operands, stream);
  ops::attention_cached(stream, args);
  return args.o;
}

std::vector<Case> attentions() {
  struct Heads {
    int64_t query, key, size;
  };
  std::vector<Case> list;
  const auto add = [&list](const Cached& p) {
    list.push_back({fmt::format("{} queries, heads {}/{} of {}, {}, capacity {}", p.rows(), p.heads,
                                p.kv_heads, p.head_dim, base::name_of(p.dtype), p.capacity),
                    [=](Operands& o, Stream& s) { attention(p, o, s); }});
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Heads& h : {Heads{1, 1, 4}, {4, 2, 8}, {6, 2, 7}, {12, 12, 64}, {8, 1, 128}}) {
      add({{0}, {1}, h.query, h.key, h.size, dtype});
      add({{40, 0, 80}, {40, 3, 17}, h.query, h.key, h.size, dtype});
      add({{0, 0, 0, 40, 40}, {5, 6, 7, 0, 1}, h.query, h.key, h.size, dtype});
      if (h.query * h.size > 256) continue;  // for time
      add({{300, 0, 600}, {300, 129, 260}, h.query, h.key, h.size, dtype, 300});
    }
    // A prompt: many queries of one sequence.
    std::vector<int32_t> lengths(37);
    std::iota(lengths.begin(), lengths.end(), 4);
    add({std::vector<int32_t>(37, 41), lengths, 4, 2, 16, dtype, 41});
  }
  add({{0, 256}, {256, 200}, 2, 2, 256, DType::f32, 256});
  add({{2100, 0}, {2100, 1025}, 2, 1, 64, DType::bf16, 2100});
  return list;
}

TEST(AttentionCachedTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(attentions()); }
TEST(AttentionCachedTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(attentions()); }
TEST(AttentionCachedTest, bits_do_not_depend_on_threads) {
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Cached p = {{300, 0, 600, 600}, {300, 129, 7, 8}, 6, 2, 24, dtype, 300};
    list.push_back({"attention", [=](Operands& o, Stream& s) { attention(p, o, s); }});
  }
  expect_bits_do_not_depend_on_threads(list);
}

TEST(AttentionCachedTest, a_query_does_not_depend_on_the_others) {
  const Cached all = {{0, 300, 300, 600, 600}, {300, 17, 18, 1, 255}, 4, 2, 24, DType::f32, 300};
  for_each_machine([&](Machine& machine) {
    Operands operands(7, machine);
    const int64_t K = all.head_dim;
    const Tensor q = operands.input({5, all.heads, K});
    const Tensor cache = operands.input({900, 2 * all.kv_heads, K});
    const Tensor first_rows = operands.integers(all.first_rows);
    const Tensor lengths = operands.integers(all.lengths);
    const auto run = [&](int64_t first, int64_t count) {
      const Tensor o = operands.result({count, all.heads, K});
      ops::attention_cached(*machine.stream,
                            {.q = q.slice_rows(first, count),
                             .cache = cache,
                             .first_rows = first_rows.slice_rows(first, count),
                             .lengths = lengths.slice_rows(first, count),
                             .max_length = 300,
                             .scale = 0.2F,
                             .o = o,
                             .workspace = workspace_for(all, operands, *machine.stream)});
      machine.stream->synchronize();
      return values_of(o);
    };
    const std::vector<double> together = run(0, 5);
    std::vector<double> one_by_one;
    for (int64_t t = 0; t < 5; ++t) {
      const std::vector<double> alone = run(t, 1);
      one_by_one.insert(one_by_one.end(), alone.begin(), alone.end());
    }
    EXPECT_EQ(together, one_by_one);
  });
}

}  // namespace
}  // namespace trireme::kernels::decoding_test
