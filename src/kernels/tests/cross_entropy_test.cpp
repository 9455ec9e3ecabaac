// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::cross_entropy_test {
namespace {

// Labels of `rows` tokens: every third is masked, with one of two negative values.
std::vector<int32_t> labels_of(int64_t rows, int64_t vocabulary) {
  std::vector<int32_t> labels;
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t masked = t % 6 == 2 ? -1 : -100;
    labels.push_back(static_cast<int32_t>(t % 3 == 2 ? masked : (t * 31 + 5) % vocabulary));
  }
  return labels;
}

StepSums& sums_at(const Tensor& tensor) { return *reinterpret_cast<StepSums*>(tensor.data); }

struct Problem {
  int64_t rows, vocabulary;
  int64_t first, columns;  // the range of the vocabulary on this rank
  Make make;
  bool loss_only, with_token_losses;
};

void stats(const Problem& p, Operands& operands, Stream& stream) {
  const Tensor logits = operands.input({p.rows, p.columns}, p.make);
  const Tensor labels = operands.integers(labels_of(p.rows, p.vocabulary));
  const Tensor found = operands.result({p.rows, 3}, {.gap = 1, .terms = p.columns});
  ops::cross_entropy_stats(
      stream, {.logits = logits, .labels = labels, .stats = found, .first_column = p.first});
}

void grad(const Problem& p, Operands& operands, Stream& stream) {
  const Tensor whole = operands.updated({p.rows, p.vocabulary}, p.make);
  const Tensor labels = operands.integers(labels_of(p.rows, p.vocabulary));
  const Tensor all_stats = operands.input({p.rows, 3}, {.gap = 1});
  operands.prepare([&](Stream& reference) {
    ops::cross_entropy_stats(reference, {.logits = whole, .labels = labels, .stats = all_stats});
  });
  StepSums earlier = {};
  earlier.loss = 3;
  earlier.tokens = 4;
  CrossEntropyGradArgs args{.logits = whole.slice_cols(p.first, p.columns),
                            .stats = all_stats,
                            .labels = labels,
                            .sums = operands.sums(earlier),
                            .first_column = p.first,
                            .loss_only = p.loss_only};
  if (p.with_token_losses) args.token_losses = operands.result({p.rows});
  ops::cross_entropy_grad(stream, args);
}

// The fused op, over the whole vocabulary.
void both(const Problem& p, Operands& operands, Stream& stream) {
  StepSums earlier = {};
  earlier.loss = 3;
  earlier.tokens = 4;
  CrossEntropyArgs args{.logits = operands.updated({p.rows, p.vocabulary}, p.make),
                        .labels = operands.integers(labels_of(p.rows, p.vocabulary)),
                        .stats = operands.result({p.rows, 3}, {.gap = 1, .terms = p.vocabulary}),
                        .sums = operands.sums(earlier),
                        .loss_only = p.loss_only};
  if (p.with_token_losses) args.token_losses = operands.result({p.rows});
  ops::cross_entropy(stream, args);
}

std::vector<Case> cases(void (*row)(const Problem&, Operands&, Stream&),
                        const std::vector<int64_t>& row_counts = {1, 7, 33, 130},
                        const std::vector<int64_t>& vocabularies = {1, 3, 17, 129, 1000}) {
  std::vector<Case> list;
  const auto add = [&](int64_t rows, int64_t vocabulary, int variant, DType dtype) {
    const int64_t first = variant % 3 == 2 ? vocabulary / 3 : 0;
    const int64_t columns = variant % 3 != 0 ? (vocabulary + 2) / 3 : vocabulary;
    const Make make = {.dtype = dtype, .gap = rows % 3, .size = 3, .terms = vocabulary};
    const Problem p = {
        rows, vocabulary, first, columns, make, variant / 6 == 1 && rows > 1, (variant & 2) != 0};
    list.push_back({fmt::format("rows {} vocabulary {} columns {}+{} {} variant {}", rows,
                                vocabulary, first, columns, base::name_of(dtype), variant),
                    [=](Operands& o, Stream& s) { row(p, o, s); }});
  };
  for (const bool is_f16 : {false, true}) {
    for (const int64_t rows : row_counts) {
      for (const int64_t vocabulary : vocabularies) {
        if (rows * vocabulary > 20000 && vocabulary <= 1000) continue;  // for time
        for (int variant = 0; variant < (is_f16 ? 3 : 12); ++variant) {
          add(rows, vocabulary, variant,
              is_f16               ? DType::f16
              : (variant & 1) != 0 ? DType::bf16
                                   : DType::f32);
        }
      }
    }
  }
  return list;
}

// Rows that start at multiples of 16 bytes, as those of the head do for any vocabulary.
Case aligned_case(int64_t rows, int64_t vocabulary, DType dtype, bool loss_only) {
  const int64_t gap = (vocabulary + 7) / 8 * 8 - vocabulary;
  const Make make = {.dtype = dtype, .gap = gap, .size = 3, .terms = vocabulary};
  const Problem p = {rows, vocabulary, 0, vocabulary, make, loss_only, true};
  return {fmt::format("rows {} vocabulary {} {} loss only {}", rows, vocabulary,
                      base::name_of(dtype), loss_only),
          [=](Operands& o, Stream& s) { both(p, o, s); }};
}

// Merges stats of `ranks` ranges of columns, which the reference computes from logits.
std::vector<Case> merge_cases() {
  std::vector<Case> list;
  for (const int64_t rows : {1, 5, 130}) {
    for (const int64_t ranks : {1, 2, 8}) {
      list.push_back({fmt::format("rows {} ranks {}", rows, ranks),
                      [rows, ranks](Operands& operands, Stream& stream) {
                        const int64_t columns = 3;
                        const Tensor logits = operands.input({rows, ranks * columns}, {.size = 3});
                        const Tensor labels = operands.integers(labels_of(rows, ranks * columns));
                        const Tensor parts = operands.input({ranks * rows, 3}, {});
                        operands.prepare([&](Stream& reference) {
                          for (int64_t r = 0; r < ranks; ++r) {
                            ops::cross_entropy_stats(
                                reference, {.logits = logits.slice_cols(r * columns, columns),
                                            .labels = labels,
                                            .stats = parts.slice_rows(r * rows, rows),
                                            .first_column = r * columns});
                          }
                        });
                        ops::cross_entropy_merge(
                            stream,
                            {.parts = parts, .stats = operands.result({rows, 3}, {.gap = 1})});
                      }});
    }
  }
  return list;
}

TEST(CrossEntropyTest, cpu_merge_agrees_with_the_reference) { expect_cpu_agrees(merge_cases()); }
TEST(CrossEntropyTest, cuda_merge_agrees_with_the_reference) { expect_cuda_agrees(merge_cases()); }

// The merged stats equal those of the whole row.
TEST(CrossEntropyTest, stats_of_parts_of_the_vocabulary_are_those_of_the_whole) {
  Machine machine(cpu_kernels());
  Operands operands(1, machine);
  const Tensor logits = operands.input({4, 20}, {.size = 3});
  const Tensor labels = operands.integers({0, 19, -1, 10});
  const Tensor whole = operands.scratch({4, 3}, DType::f32);
  const Tensor parts = operands.scratch({8, 3}, DType::f32);
  const Tensor merged = operands.scratch({4, 3}, DType::f32);
  ops::cross_entropy_stats(*machine.stream, {.logits = logits, .labels = labels, .stats = whole});
  for (const int64_t r : {0, 1}) {
    ops::cross_entropy_stats(*machine.stream, {.logits = logits.slice_cols(r * 10, 10),
                                               .labels = labels,
                                               .stats = parts.slice_rows(r * 4, 4),
                                               .first_column = r * 10});
  }
  ops::cross_entropy_merge(*machine.stream, {.parts = parts, .stats = merged});
  machine.stream->synchronize();
  const std::vector<double> expected = values_of(whole), found = values_of(merged);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(CrossEntropyTest, cpu_stats_agree_with_the_reference) { expect_cpu_agrees(cases(stats)); }

TEST(CrossEntropyTest, cpu_grad_agrees_with_the_reference) { expect_cpu_agrees(cases(grad)); }

TEST(CrossEntropyTest, cpu_fused_op_agrees_with_the_reference) { expect_cpu_agrees(cases(both)); }

// Vocabularies of models; rows are aligned if their number is a multiple of three.
TEST(CrossEntropyTest, cuda_stats_agree_with_the_reference) {
  expect_cuda_agrees(cases(stats));
  expect_cuda_agrees(cases(stats, {9, 10}, {8192, 32000, 50257}));
  expect_cuda_agrees(cases(stats, {2}, {152064}));
}

TEST(CrossEntropyTest, cuda_grad_agrees_with_the_reference) {
  expect_cuda_agrees(cases(grad));
  expect_cuda_agrees(cases(grad, {9, 10}, {8192, 32000, 50257}));
  expect_cuda_agrees(cases(grad, {2100}, {17}));
}

// More rows than blocks run concurrently, so that a block has several; rows that fit into shared
// memory twice, once, and not at all.
TEST(CrossEntropyTest, cuda_fused_op_agrees_with_the_reference) {
  expect_cuda_agrees(cases(both));
  std::vector<Case> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool loss_only : {false, true}) {
      for (const int64_t vocabulary : {1, 7, 17, 1000, 4101}) {
        list.push_back(aligned_case(1, vocabulary, dtype, loss_only));
        list.push_back(aligned_case(900, vocabulary, dtype, loss_only));
      }
      list.push_back(aligned_case(3, 50257, dtype, loss_only));
      list.push_back(aligned_case(2, 152064, dtype, loss_only));
    }
  }
  list.push_back(aligned_case(300, 50257, DType::bf16, false));
  list.push_back(aligned_case(140, 50257, DType::f32, false));
  list.push_back(aligned_case(140, 128256, DType::bf16, false));
  expect_cuda_agrees(list);
}

TEST(CrossEntropyTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(cases(both));
  expect_bits_do_not_depend_on_threads(cases(stats));
  expect_bits_do_not_depend_on_threads(cases(grad));
}

TEST(CrossEntropyTest, logits_have_the_gradient_of_finite_differences) {
  constexpr int64_t T = 5, V = 7;
  Machine machine(reference_kernels());
  const Kernels& rows = machine.device.kernels();
  Operands operands(1);
  const Tensor labels = operands.integers({3, -1, 0, 6, 6}), sums = operands.sums();
  Reals logits({T, V}, 1), row_stats({T, 3});
  const auto run = [&](bool loss_only) {
    sums_at(sums) = {};
    rows.cross_entropy_stats(
        *machine.stream, {.logits = logits.tensor, .labels = labels, .stats = row_stats.tensor});
    rows.cross_entropy_grad(*machine.stream, {.logits = logits.tensor,
                                              .stats = row_stats.tensor,
                                              .labels = labels,
                                              .sums = sums,
                                              .loss_only = loss_only});
    return sums_at(sums).loss;
  };
  Reals gradient({T, V});
  const std::vector<double> before = logits.values;
  run(false);
  std::copy(logits.values.begin(), logits.values.end(), gradient.values.begin());
  std::copy(before.begin(), before.end(), logits.values.begin());
  expect_gradient("logits", logits, gradient, [&] { return run(true); });
}

TEST(CrossEntropyTest, rows_without_a_label_have_no_loss_and_no_gradient) {
  for_each_table([](Stream& stream) {
    Operands operands(1);
    const Tensor logits = operands.updated({4, 9}), row_stats = operands.result({4, 3});
    const Tensor labels = operands.integers({-1, 2, -100, -7}), sums = operands.sums();
    const Tensor token_losses = operands.result({4});
    ops::cross_entropy_stats(stream, {.logits = logits, .labels = labels, .stats = row_stats});
    ops::cross_entropy_grad(stream, {.logits = logits,
                                     .stats = row_stats,
                                     .labels = labels,
                                     .sums = sums,
                                     .token_losses = token_losses});
    EXPECT_EQ(sums_at(sums).tokens, 1);
    const std::vector<double> gradient = values_of(logits), losses = values_of(token_losses);
    double total = 0;
    for (size_t t = 0; t < 4; ++t) {
      if (t != 1) {
        EXPECT_EQ(losses[t], 0);
      }
      for (size_t c = 0; c < 9; ++c) {
        if (t != 1) {
          EXPECT_EQ(gradient[t * 9 + c], 0);
        }
        total += gradient[t * 9 + c];
      }
    }
    EXPECT_GT(losses[1], 0);
    EXPECT_NEAR(sums_at(sums).loss, losses[1], 1e-6 * losses[1]);  // one fp32 rounding apart
    EXPECT_NEAR(total, 0, 1e-6);  // softmax and onehot both sum to one
  });
}

TEST(CrossEntropyTest, the_fused_op_gives_the_bits_of_the_two_ops) {
  constexpr int64_t T = 9, V = 50;
  for_each_table([](Stream& stream) {
    Operands two(1), one(1);
    for (Operands* operands : {&two, &one}) {
      const Tensor logits = operands->updated({T, V}, {.dtype = DType::bf16, .size = 3});
      const Tensor labels = operands->integers(labels_of(T, V));
      const Tensor row_stats = operands->result({T, 3}), losses = operands->result({T});
      const Tensor sums = operands->sums();
      if (operands == &one) {
        ops::cross_entropy(stream, {.logits = logits,
                                    .labels = labels,
                                    .stats = row_stats,
                                    .sums = sums,
                                    .token_losses = losses});
      } else {
        ops::cross_entropy_stats(stream, {.logits = logits, .labels = labels, .stats = row_stats});
        ops::cross_entropy_grad(stream, {.logits = logits,
                                         .stats = row_stats,
                                         .labels = labels,
                                         .sums = sums,
                                         .token_losses = losses});
      }
    }
    one.expect_same_bits(two);
  });
}

// The merged statistics of the two halves of a vocabulary equal those of the whole, and each half
// computes its columns of the gradient from them.
TEST(CrossEntropyTest, a_split_vocabulary_gives_the_same_loss_and_gradient) {
  constexpr int64_t T = 9, V = 50, cut = 21;
  for_each_table([](Stream& stream) {
    Operands operands(1);
    const Tensor logits = operands.updated({T, V}, {.size = 3}), split = operands.updated({T, V});
    ops::copy(stream, {.x = logits, .d = split});
    const Tensor labels = operands.integers(labels_of(T, V));
    const Tensor whole = operands.result({T, 3}), left = operands.result({T, 3});
    const Tensor right = operands.result({T, 3});
    const Tensor columns[2] = {split.slice_cols(0, cut), split.slice_cols(cut, V - cut)};
    ops::cross_entropy_stats(stream, {.logits = logits, .labels = labels, .stats = whole});
    ops::cross_entropy_stats(stream, {.logits = columns[0], .labels = labels, .stats = left});
    ops::cross_entropy_stats(
        stream, {.logits = columns[1], .labels = labels, .stats = right, .first_column = cut});

    const std::vector<double> w = values_of(whole), l = values_of(left), r = values_of(right);
    const Tensor combined = operands.input({T, 3}, {}, [&](int64_t t, int64_t field) {
      const auto at = static_cast<size_t>(3 * t);
      const double highest = std::max(l[at], r[at]);
      if (field == 0) return highest;
      if (field == 2) return l[at + 2] + r[at + 2];
      return l[at + 1] * std::exp(l[at] - highest) + r[at + 1] * std::exp(r[at] - highest);
    });
    const std::vector<double> c = values_of(combined);
    for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(c[i], w[i], 1e-5 * std::abs(w[i]));

    const Tensor sums = operands.sums(), split_sums = operands.sums();
    ops::cross_entropy_grad(stream,
                            {.logits = logits, .stats = whole, .labels = labels, .sums = sums});
    ops::cross_entropy_grad(
        stream, {.logits = columns[0], .stats = combined, .labels = labels, .sums = split_sums});
    EXPECT_NEAR(sums_at(sums).loss, sums_at(split_sums).loss, 1e-5 * sums_at(sums).loss);
    EXPECT_EQ(sums_at(sums).tokens, sums_at(split_sums).tokens);
    ops::cross_entropy_grad(stream, {.logits = columns[1],
                                     .stats = combined,
                                     .labels = labels,
                                     .sums = split_sums,
                                     .first_column = cut});
    const std::vector<double> expected = values_of(logits), found = values_of(split);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6);
  });
}

TEST(CrossEntropyTest, huge_logits_do_not_overflow) {
  for_each_table([](Stream& stream) {
    Operands operands(1);
    const Tensor logits = operands.updated({1, 3}), row_stats = operands.result({1, 3});
    auto* values = reinterpret_cast<float*>(logits.data);
    values[0] = 1e30F;
    values[1] = -1e30F;
    values[2] = 1e30F;
    const Tensor labels = operands.integers({2}), sums = operands.sums();
    ops::cross_entropy_stats(stream, {.logits = logits, .labels = labels, .stats = row_stats});
    ops::cross_entropy_grad(stream,
                            {.logits = logits, .stats = row_stats, .labels = labels, .sums = sums});
    EXPECT_TRUE(std::isfinite(sums_at(sums).loss));
    EXPECT_NEAR(values_of(logits)[0], 0.5, 1e-6);
    EXPECT_EQ(values_of(logits)[1], 0);
    EXPECT_NEAR(values_of(logits)[2], -0.5, 1e-6);
  });
}

}  // namespace
}  // namespace trireme::kernels::cross_entropy_test
