// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"
#include "spec/facts/backend.h"

namespace trireme::kernels::embedding_test {
namespace {

constexpr int64_t position_count = 9;

std::vector<int32_t> random_indices(int64_t count, int64_t bound, uint64_t seed) {
  std::vector<int32_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back(static_cast<int32_t>(
        base::rng_below(seed, static_cast<uint64_t>(i), static_cast<uint64_t>(bound))));
  }
  return indices;
}

struct Problem {
  int64_t tokens, width;
  int64_t vocabulary;       // from which tokens are sampled
  int64_t first_row, rows;  // the part of it that the table holds
  DType dtype, grad_dtype;
  bool with_positions;
};

void forward(const Problem& p, Operands& operands, Stream& stream) {
  const Make make = {.dtype = p.dtype, .gap = p.width % 3};
  EmbeddingForwardArgs args;
  args.first_row = p.first_row;
  args.tokens = operands.integers(random_indices(p.tokens, p.vocabulary, 1));
  args.table = operands.input({p.rows, p.width}, make);
  if (p.with_positions) {
    args.positions = operands.integers(random_indices(p.tokens, position_count, 2));
    args.position_table = operands.input({position_count, p.width}, make);
  }
  args.y = operands.result({p.tokens, p.width}, make);
  ops::embedding_forward(stream, args);
}

void backward(const Problem& p, Operands& operands, Stream& stream) {
  const Make grad = {.dtype = p.grad_dtype, .gap = p.width % 2, .terms = p.tokens};
  EmbeddingBackwardArgs args;
  args.first_row = p.first_row;
  args.tokens = operands.integers(random_indices(p.tokens, p.vocabulary, 1));
  args.dy = operands.input({p.tokens, p.width}, {.dtype = p.dtype, .gap = p.width % 3});
  args.dtable = operands.updated({p.rows, p.width}, grad);
  if (p.with_positions) {
    args.positions = operands.integers(random_indices(p.tokens, position_count, 2));
    args.dposition_table = operands.updated({position_count, p.width}, grad);
  }
  const base::TensorSpec workspace =
      spec::embedding_workspace(spec::cuda_backend(true), p.tokens, p.width);
  args.workspace = operands.scratch(workspace.shape, workspace.dtype);
  ops::embedding_backward(stream, args);
}

using Row = void (*)(const Problem&, Operands&, Stream&);

// All types; with and without positions; a table that holds all rows or the middle third.
void add_variants(std::vector<Case>& list, Row row, int64_t tokens, int64_t width,
                  int64_t vocabulary) {
  for (int variant = 0; variant < 10; ++variant) {
    const bool is_f16 = variant >= 8;
    const bool is_part = (variant & (is_f16 ? 1 : 4)) != 0;
    const Problem p = {tokens,
                       width,
                       vocabulary,
                       is_part ? vocabulary / 3 : 0,
                       is_part ? vocabulary / 3 + 1 : vocabulary,
                       is_f16               ? DType::f16
                       : (variant & 1) != 0 ? DType::bf16
                                            : DType::f32,
                       (variant & 2) != 0 ? DType::bf16 : DType::f32,
                       (variant + tokens) % 3 != 0};
    list.push_back({fmt::format("tokens {} width {} vocabulary {} variant {}", tokens, width,
                                vocabulary, variant),
                    [=](Operands& o, Stream& s) { row(p, o, s); }});
  }
}

std::vector<Case> cases(Row row) {
  std::vector<Case> list;
  for (const int64_t tokens : {1, 7, 129, 300}) {
    for (const int64_t width : {1, 17, 65, 200}) add_variants(list, row, tokens, width, 60);
  }
  return list;
}

// More tokens than are sorted at once, or merged in one pass; rows with no token, one, or runs over
// many blocks of sorted tokens; widths that are a multiple of the vector length.
std::vector<Case> large_cases(Row row) {
  std::vector<Case> list;
  add_variants(list, row, 32, 48, 4);
  add_variants(list, row, 1024, 96, 1);
  add_variants(list, row, 1025, 24, 3000);
  add_variants(list, row, 3000, 264, 300);
  add_variants(list, row, 9000, 24, 70);
  add_variants(list, row, 20000, 6, 1);
  add_variants(list, row, 20000, 3, 50000);
  add_variants(list, row, 66000, 1, 900);
  add_variants(list, row, 70, 4101, 20);
  return list;
}

TEST(EmbeddingTest, cpu_forward_agrees_with_the_reference) { expect_cpu_agrees(cases(forward)); }

TEST(EmbeddingTest, cpu_backward_agrees_with_the_reference) { expect_cpu_agrees(cases(backward)); }

TEST(EmbeddingTest, cuda_forward_agrees_with_the_reference) {
  expect_cuda_agrees(cases(forward));
  expect_cuda_agrees(large_cases(forward));
}

TEST(EmbeddingTest, cuda_backward_agrees_with_the_reference) {
  expect_cuda_agrees(cases(backward));
  expect_cuda_agrees(large_cases(backward));
}

TEST(EmbeddingTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(cases(forward));
  expect_bits_do_not_depend_on_threads(cases(backward));
}

TEST(EmbeddingTest, tables_have_the_gradient_of_finite_differences) {
  constexpr int64_t T = 11, V = 5, D = 3;
  Machine machine(reference_kernels());
  Operands indices(1);
  const Tensor tokens =
      indices.integers({0, 4, 4, 2, 7, 3, 0, 1, 6, 5, 2});  // rows from 5 on belong to other ranks
  const Tensor positions = indices.integers({0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0});
  Reals table({V, D}, 1), position_table({4, D}, 2), y({T, D}), weights({T, D}, 3);
  const auto loss = [&] {
    machine.device.kernels().embedding_forward(*machine.stream,
                                               {.tokens = tokens,
                                                .positions = positions,
                                                .table = table.tensor,
                                                .position_table = position_table.tensor,
                                                .y = y.tensor});
    return inner(weights, y);
  };
  Reals dtable({V, D}), dposition_table({4, D});
  machine.device.kernels().embedding_backward(*machine.stream,
                                              {.tokens = tokens,
                                               .positions = positions,
                                               .dy = weights.tensor,
                                               .dtable = dtable.tensor,
                                               .dposition_table = dposition_table.tensor});
  expect_gradient("table", table, dtable, loss);
  expect_gradient("position_table", position_table, dposition_table, loss);
}

TEST(EmbeddingTest, tokens_of_other_ranks_contribute_nothing) {
  for_each_table([](Stream& stream) {
    Operands operands(1);
    const Tensor tokens =
        operands.integers({0, 19, 20, 42, 43, 59, -1});  // 20..42 are in the table
    const Tensor table = operands.input({23, 8}), y = operands.result({7, 8});
    ops::embedding_forward(stream, {.tokens = tokens, .table = table, .y = y, .first_row = 20});
    const std::vector<double> rows = values_of(table), found = values_of(y);
    for (size_t t = 0; t < 7; ++t) {
      for (size_t d = 0; d < 8; ++d) {
        const double expected = t == 2 ? rows[d] : t == 3 ? rows[22 * 8 + d] : 0;
        EXPECT_EQ(found[t * 8 + d], expected) << "token " << t;
      }
    }

    const Tensor dtable = operands.updated({23, 8});
    const std::vector<double> before = values_of(dtable);
    ops::embedding_backward(stream, {.tokens = tokens, .dy = y, .dtable = dtable, .first_row = 20});
    const std::vector<double> after = values_of(dtable);
    for (size_t i = 8; i < 22 * 8; ++i) EXPECT_EQ(after[i], before[i]) << "element " << i;
  });
}

}  // namespace
}  // namespace trireme::kernels::embedding_test
