// SPDX-License-Identifier: Apache-2.0
// The router and the rows of pairs on a GPU, of sizes that take several blocks: more experts than a
// segment of pairs has, as many as lanes have room for, more choices than lanes.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::cuda_experts_rows_test {
namespace {

std::vector<int32_t> choices(int64_t tokens, int64_t chosen, int64_t experts, bool is_skewed) {
  std::vector<int32_t> choice;
  const base::RngKey key = base::rng_key(7, "choices");
  for (int64_t t = 0; t < tokens; ++t) {
    const auto bound = static_cast<uint64_t>(is_skewed ? std::min<int64_t>(experts, 2) : experts);
    const auto first = static_cast<int64_t>(base::rng_below(key, static_cast<uint64_t>(t), bound));
    for (int64_t k = 0; k < chosen; ++k) {
      choice.push_back(static_cast<int32_t>((first + k * (1 + t % 2)) % experts));
    }
  }
  return choice;
}

struct Routing {
  int64_t tokens, chosen, experts, blocks, tile, capacity, block_rows;
  bool is_skewed;
};

TEST(CudaExpertsRowsTest, rows_of_pairs_agree) {
  const std::vector<Routing> routings = {
      {1000, 8, 64, 1, 128, 0, 16384, false},  // rows for all
      {1000, 8, 64, 1, 128, 0, 8192, false},   // too few rows
      {3000, 2, 8, 4, 1, 0, 2048, false},      // blocks, some too small
      {3000, 2, 8, 2, 1, 500, 4096, true},     // capacity, all tokens to few experts
      {999, 3, 600, 1, 128, 4, 12800, true},   // more experts than a segment has pairs
      {1, 1, 1, 1, 128, 0, 128, false},       {5000, 1, 40, 8, 1, 90, 256, true},
  };
  std::vector<Case> cases;
  for (const Routing& r : routings) {
    cases.push_back(
        {std::to_string(r.tokens) + " tokens, " + std::to_string(r.experts) + " experts",
         [r](Operands& operands, Stream& stream) {
           const Make exact = {.dtype = DType::i32, .exact = true};
           const Tensor choice =
               operands.integers(choices(r.tokens, r.chosen, r.experts, r.is_skewed))
                   .reshape({r.tokens, r.chosen});
           const Tensor place = operands.result({r.tokens, r.chosen}, exact);
           const Tensor pair = operands.result({r.blocks * r.block_rows}, exact);
           const Tensor starts = operands.result({r.experts + 1}, exact);
           ops::route_rows(stream,
                           {.choice = choice,
                            .experts = r.experts,
                            .blocks = r.blocks,
                            .tile = r.tile,
                            .capacity = r.capacity,
                            .place = place,
                            .pair = pair,
                            .counts = operands.result({r.experts}, exact),
                            .starts = starts,
                            .stats = operands.updated({spec::RouterStats{r.experts}.size()}, {})});
         }});
  }
  expect_cuda_agrees(cases);
}

TEST(CudaExpertsRowsTest, arranged_rows_agree) {
  std::vector<Case> cases;
  for (const int64_t groups : {int64_t{1}, int64_t{7}, int64_t{300}}) {
    for (const int64_t tile : {int64_t{1}, int64_t{128}}) {
      cases.push_back({std::to_string(groups) + " groups", [=](Operands& operands, Stream& stream) {
                         const Make exact = {.dtype = DType::i32, .exact = true};
                         const int64_t blocks = 5, block_rows = 2000;
                         std::vector<int32_t> counts;
                         for (int64_t i = 0; i < blocks * groups; ++i) {
                           counts.push_back(
                               static_cast<int32_t>(i * 37 % (2 * block_rows / groups)) / 2);
                         }
                         const int64_t rows = blocks * block_rows + groups * (tile - 1);
                         ops::arrange_rows(
                             stream, {.counts = operands.integers(counts).reshape({blocks, groups}),
                                      .tile = tile,
                                      .place = operands.result({blocks * block_rows}, exact),
                                      .source = operands.result({rows}, exact),
                                      .starts = operands.result({groups + 1}, exact)});
                       }});
    }
  }
  expect_cuda_agrees(cases);
}

TEST(CudaExpertsRowsTest, moved_rows_agree) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t width : {int64_t{1}, int64_t{64}, int64_t{100}, int64_t{2056}}) {
      cases.push_back(
          {std::to_string(width) + " columns", [=](Operands& operands, Stream& stream) {
             const int64_t tokens = 37, K = 3, rows = 130;
             const Make make = {.dtype = dtype}, exact = {.dtype = dtype, .exact = true};
             std::vector<int32_t> source, place;
             for (int32_t r = 0; r < rows; ++r) source.push_back(r % 5 == 0 ? -1 : r * 7 % 111);
             for (int32_t i = 0; i < tokens * K; ++i) place.push_back(i % 4 == 3 ? -1 : i);
             ops::gather_pairs(stream, {.x = operands.input({tokens, width}, make),
                                        .source = operands.integers(source),
                                        .divisor = K,
                                        .end = operands.integers({121}),
                                        .d = operands.updated({rows, width}, exact)});
             std::vector<int32_t> copies, origins(static_cast<size_t>(rows), -1);
             for (int32_t i = 0; i < tokens * K; ++i) {
               copies.push_back(i % 4 == 3 ? -1 : i + i / 10);
               if (copies.back() >= 0) origins[static_cast<size_t>(copies.back())] = i;
             }
             ops::gather_pairs(stream, {.x = operands.input({tokens, width}, make),
                                        .source = operands.integers(origins),
                                        .divisor = K,
                                        .end = operands.integers({121}),
                                        .place = operands.integers(copies).reshape({tokens, K}),
                                        .d = operands.updated({rows, width}, exact)});
             ops::sum_pairs(stream, {.rows = operands.input({rows, width}, make),
                                     .place = operands.integers(place).reshape({tokens, K}),
                                     .residual = operands.input({tokens, width}, make),
                                     .other = operands.input({tokens, width}, make),
                                     .y = operands.result({tokens, width}, make)});
             ops::sum_pairs(stream, {.rows = operands.input({rows, width}, make),
                                     .place = operands.integers(place).reshape({tokens, K}),
                                     .y = operands.result({tokens, width}, make)});
           }});
    }
  }
  expect_cuda_agrees(cases);
}

std::vector<spec::RouterSpec> rules() {
  using spec::RouterScore;
  return {
      {.experts = 64, .chosen = 8},
      {.experts = 8, .chosen = 2, .renormalizes = true},
      {.experts = 128, .chosen = 8, .renormalizes = true},
      {.experts = 40, .chosen = 40},
      {.experts = 256,
       .chosen = 8,
       .score = RouterScore::sigmoid,
       .renormalizes = true,
       .groups = 8,
       .chosen_groups = 4,
       .scale = 2.5F,
       .has_bias = true},
      {.experts = 60, .chosen = 4, .score = RouterScore::sigmoid, .has_bias = true},
      {.experts = 320, .chosen = 48, .groups = 40, .chosen_groups = 33, .has_bias = true},
      {.experts = 1000, .chosen = 6, .score = RouterScore::sigmoid, .renormalizes = true},
  };
}

TEST(CudaExpertsRowsTest, routers_agree) {
  std::vector<Case> cases;
  for (const spec::RouterSpec& rule : rules()) {
    for (const bool has_sums : {false, true}) {
      cases.push_back(
          {std::to_string(rule.experts) + " experts", [=](Operands& operands, Stream& stream) {
             const int64_t tokens = 301, E = rule.experts, K = rule.chosen;
             const Make exact = {.dtype = DType::i32, .exact = true};
             const Tensor logits = operands.input({tokens, E}, {.size = 2});
             const Tensor choice = operands.result({tokens, K}, exact);
             RouterForwardArgs args = {.rule = rule,
                                       .logits = logits,
                                       .choice = choice,
                                       .weights = operands.result({tokens, K}, {.terms = E})};
             if (rule.has_bias) args.bias = operands.input({E}, {.size = 0.01F});
             if (has_sums) {
               args.stats = operands.updated({spec::RouterStats{E}.size()}, {.terms = tokens});
               args.load = operands.result({3, E}, {.exact = true});
               args.first_row = 99;
               args.sequence_rows = 160;
             }
             ops::router_forward(stream, args);
           }});
    }
  }
  expect_cuda_agrees(cases);
}

TEST(CudaExpertsRowsTest, gradients_of_routers_agree) {
  std::vector<Case> cases;
  for (const spec::RouterSpec& rule : rules()) {
    for (const bool has_terms : {false, true}) {
      cases.push_back(
          {std::to_string(rule.experts) + " experts", [=](Operands& operands, Stream& stream) {
             const int64_t tokens = 101, E = rule.experts, K = rule.chosen;
             std::vector<int32_t> choice, place;
             for (int32_t i = 0; i < tokens * K; ++i) {
               choice.push_back(static_cast<int32_t>((i / K * 3 + i % K) % E));
               place.push_back(i % 7 == 6 ? -1 : i);
             }
             RouterBackwardArgs args = {.rule = rule,
                                        .logits = operands.input({tokens, E}, {.size = 2}),
                                        .choice = operands.integers(choice).reshape({tokens, K}),
                                        .place = operands.integers(place).reshape({tokens, K}),
                                        .row_grads = operands.input({tokens * K}, {})};
             if (has_terms) {
               args.load =
                   operands.input({2, E}, {}, [](int64_t r, int64_t c) { return r + c % 5 + 1; });
               args.first_row = 30;
               args.sequence_rows = 90;
               args.aux_scale = 0.3F;
               args.z_scale = 0.1F;
               std::vector<int32_t> labels;
               for (int64_t t = 0; t < tokens; ++t) {
                 labels.push_back(t % 4 == 3 ? -1 : static_cast<int32_t>(t));
               }
               args.labels = operands.integers(labels);
             }
             args.dlogits = operands.result(
                 {tokens, E}, {.dtype = has_terms ? DType::bf16 : DType::f32, .terms = E});
             ops::router_backward(stream, args);
           }});
    }
  }
  expect_cuda_agrees(cases);
}

}  // namespace
}  // namespace trireme::kernels::cuda_experts_rows_test
