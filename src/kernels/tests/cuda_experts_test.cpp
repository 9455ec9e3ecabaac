// SPDX-License-Identifier: Apache-2.0
// Ops of mixture-of-experts layers on a GPU, of sizes that take several tiles: groups that share a
// cluster of tiles, empty groups, an odd last tile, widths that end inside a tile, operands for the
// tensor cores and operands that they do not support; and the router with as many experts as lanes
// have room for.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/ops.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels {
namespace {

struct Groups {
  std::string name;
  std::vector<int32_t> sizes;  // rows, multiples of 128
  int64_t rows;                // that the tensors have
};
const std::vector<Groups> all_groups = {
    {"one", {256}, 256},
    {"odd", {128, 0, 384, 128}, 1024},
    {"skewed", {0, 640, 128, 0, 0, 256, 128, 0}, 1152},
    {"none", {0, 0, 0}, 256},
};

struct Sizes {
  int64_t n, d;
};

std::vector<int32_t> starts_of(const Groups& g) {
  std::vector<int32_t> starts = {0};
  for (const int32_t size : g.sizes) starts.push_back(starts.back() + size);
  return starts;
}

int64_t count_of(const Groups& g) { return std::ssize(g.sizes); }

// Runs `run` for groups and widths of tiles and of parts of tiles.
using Run = std::function<void(Operands&, Stream&, const Groups&, const Sizes&, const Make&)>;
std::vector<Case> cases_of(const Run& run) {
  const std::vector<Sizes> all_sizes = {{256, 64}, {264, 136}, {72, 520}};
  std::vector<Case> cases;
  for (const Groups& g : all_groups) {
    for (const Sizes& s : all_sizes) {
      const std::vector<std::pair<std::string, Make>> makes = {
          {"bf16", {.dtype = DType::bf16, .size = 0.5F}},
          {"bf16 with gaps", {.dtype = DType::bf16, .gap = 8, .size = 0.5F}},
          {"unaligned bf16", {.dtype = DType::bf16, .gap = 1, .size = 0.5F}},
          {"f32", {.dtype = DType::f32, .size = 0.5F}}};
      for (const auto& [name, make] : makes) {
        const bool is_slow = name != "bf16";
        if (is_slow && (g.name == "skewed" || s.n != 264)) continue;
        cases.push_back(
            {name + ", groups " + g.name + ", " + std::to_string(s.n) + " x " + std::to_string(s.d),
             [=](Operands& operands, Stream& stream) { run(operands, stream, g, s, make); }});
      }
    }
  }
  return cases;
}

Make packed(Make make) {
  make.gap = 0;
  return make;
}
Make summed(Make make, int64_t terms) {
  make.terms = terms;
  return make;
}

TEST(CudaExperts, products_of_rows_agree) {
  expect_cuda_agrees(cases_of([](Operands& operands, Stream& stream, const Groups& g,
                                 const Sizes& s, const Make& make) {
    const Tensor starts = operands.integers(starts_of(g));
    ops::grouped_forward(stream, {.x = operands.input({g.rows, s.d}, make),
                                  .weight = operands.input({count_of(g), s.n, s.d}, packed(make)),
                                  .starts = starts,
                                  .y = operands.updated({g.rows, s.n}, summed(make, s.d))});
    ops::grouped_backward_input(stream,
                                {.dy = operands.input({g.rows, s.n}, make),
                                 .weight = operands.input({count_of(g), s.n, s.d}, packed(make)),
                                 .starts = starts,
                                 .dx = operands.updated({g.rows, s.d}, summed(make, s.n))});
  }));
}

TEST(CudaExperts, activations_agree) {
  expect_cuda_agrees(cases_of(
      [](Operands& operands, Stream& stream, const Groups& g, const Sizes& s, const Make& make) {
        const Tensor starts = operands.integers(starts_of(g));
        const Tensor row_weight = operands.input({g.rows}, {});
        const Tensor gate_up = operands.updated({g.rows, 2 * s.n}, summed(make, s.d));
        ops::grouped_swiglu_forward(
            stream, {.x = operands.input({g.rows, s.d}, make),
                     .weight = operands.input({count_of(g), 2 * s.n, s.d}, packed(make)),
                     .starts = starts,
                     .row_weight = row_weight,
                     .gate_up = gate_up,
                     .act = operands.updated({g.rows, s.n}, summed(make, s.d))});
        // From an input, since the rows of gate_up may differ in their last bits.
        ops::grouped_swiglu(stream, {.gate_up = operands.input({g.rows, 2 * s.n}, make),
                                     .row_weight = row_weight,
                                     .end = starts.slice_rows(count_of(g), 1),
                                     .act = operands.updated({g.rows, s.n}, make)});
      }));
}

TEST(CudaExperts, gradients_of_activations_agree) {
  for (const bool in_place : {false, true}) {
    expect_cuda_agrees(cases_of([in_place](Operands& operands, Stream& stream, const Groups& g,
                                           const Sizes& s, const Make& make) {
      Make wide = summed(make, s.d * s.n);
      Make sums = {.terms = s.d * s.n, .from_bf16 = make.dtype == DType::bf16};
      const Tensor gate_up = in_place ? operands.updated({g.rows, 2 * s.n}, wide)
                                      : operands.input({g.rows, 2 * s.n}, make);
      ops::grouped_swiglu_backward(
          stream, {.dy = operands.input({g.rows, s.d}, make),
                   .weight = operands.input({count_of(g), s.d, s.n}, packed(make)),
                   .starts = operands.integers(starts_of(g)),
                   .gate_up = gate_up,
                   .row_weight = operands.input({g.rows}, {}),
                   .dgate_up = in_place ? gate_up : operands.updated({g.rows, 2 * s.n}, wide),
                   .dweight = operands.updated({g.rows}, sums),
                   .act = in_place ? Tensor{} : operands.updated({g.rows, s.n}, make)});
    }));
  }
}

TEST(CudaExperts, gradients_of_weights_agree) {
  for (const bool adds : {false, true}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      expect_cuda_agrees(cases_of([=](Operands& operands, Stream& stream, const Groups& g,
                                      const Sizes& s, const Make& make) {
        const Make grads = {.dtype = dtype, .terms = 640, .from_bf16 = make.dtype == DType::bf16};
        const base::Shape shape = {count_of(g), s.n, s.d};
        ops::grouped_backward_weight(stream, {.dy = operands.input({g.rows, s.n}, make),
                                              .x = operands.input({g.rows, s.d}, make),
                                              .starts = operands.integers(starts_of(g)),
                                              .dweight = adds ? operands.updated(shape, grads)
                                                              : operands.result(shape, grads),
                                              .adds = adds});
      }));
    }
  }
}

// ---- rows and router

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

TEST(CudaExperts, rows_of_pairs_agree) {
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

TEST(CudaExperts, arranged_rows_agree) {
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

TEST(CudaExperts, moved_rows_agree) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
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

TEST(CudaExperts, routers_agree) {
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

TEST(CudaExperts, gradients_of_routers_agree) {
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
}  // namespace trireme::kernels
