// SPDX-License-Identifier: Apache-2.0
// The ops of the router against the reference, their counts exactly, and the reference against
// finite differences.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ops.h"
#include "kernels/tests/experts/groups_rig_test.h"
#include "kernels/tests/op_test.h"

namespace trireme::kernels::experts_router_test {
namespace {

using spec::RouterScore;
using spec::RouterSpec;
using spec::RouterStats;

std::vector<RouterSpec> rules() {
  using enum RouterScore;
  return {
      {.experts = 1, .chosen = 1},
      {.experts = 8, .chosen = 2, .renormalizes = true},
      {.experts = 7, .chosen = 3},
      {.experts = 64, .chosen = 8, .scale = 1.5F},
      {.experts = 6, .chosen = 6, .score = sigmoid, .renormalizes = true, .scale = 2.5F},
      {.experts = 16, .chosen = 3, .score = sigmoid, .has_bias = true},
      {.experts = 32,
       .chosen = 4,
       .score = sigmoid,
       .renormalizes = true,
       .groups = 8,
       .chosen_groups = 3,
       .scale = 2.5F,
       .has_bias = true},
      {.experts = 256,
       .chosen = 8,
       .score = sigmoid,
       .renormalizes = true,
       .groups = 8,
       .chosen_groups = 4,
       .scale = 2.5F,
       .has_bias = true},
      {.experts = 130, .chosen = 5, .groups = 13, .chosen_groups = 2},
  };
}

std::string name_of(const RouterSpec& r, int64_t tokens) {
  return fmt::format("{} tokens, {} of {} experts, {}{}{}, groups {} of {}", tokens, r.chosen,
                     r.experts, r.score == RouterScore::softmax ? "softmax" : "sigmoid",
                     r.renormalizes ? ", renormalized" : "", r.has_bias ? ", bias" : "",
                     r.chosen_groups, r.groups);
}

constexpr int64_t sequence_rows = 50, first_row = 30;

int64_t sequences_of(int64_t tokens) { return (first_row + tokens - 1) / sequence_rows + 1; }

void forward(const RouterSpec& rule, int64_t T, bool counts, Operands& o, Stream& stream) {
  const int64_t E = rule.experts, K = rule.chosen;
  RouterForwardArgs args = {.rule = rule,
                            .logits = o.input({T, E}, {.gap = 8, .size = 2}),
                            .choice = index_result(o, {T, K}),
                            .weights = o.result({T, K}, {.terms = E})};
  if (rule.has_bias) args.bias = o.input({E}, {.size = 0.1F});
  if (counts) {
    args.stats = o.updated({RouterStats{E}.size()}, {.terms = T * E});
    args.load = o.result({sequences_of(T), E}, {.exact = true});
    args.first_row = first_row;
    args.sequence_rows = sequence_rows;
  }
  ops::router_forward(stream, args);
}

std::vector<Case> forwards() {
  std::vector<Case> list;
  for (const RouterSpec& rule : rules()) {
    for (const int64_t tokens : {1, 37, 300}) {
      for (const bool counts : {false, true}) {
        list.push_back({name_of(rule, tokens),
                        [=](Operands& o, Stream& s) { forward(rule, tokens, counts, o, s); }});
      }
    }
  }
  return list;
}

TEST(RouterForwardTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(forwards()); }
TEST(RouterForwardTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(forwards()); }
TEST(RouterForwardTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(forwards());
}

TEST(RouterForwardTest, equal_scores_go_to_the_lowest_index) {
  for_each_machine([](Machine& machine) {
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
      constexpr int64_t T = 70, E = 12;
      const RouterSpec rule = {
          .experts = E, .chosen = 3, .score = score, .groups = 3, .chosen_groups = 2};
      Operands o(1, machine);
      const Tensor logits = o.input({T, E}, {}, [](int64_t t, int64_t e) {
        return t % 2 == 0 ? 0.5 : static_cast<double>(e % 2);
      });
      const Tensor choice = index_result(o, {T, 3});
      ops::router_forward(
          *machine.stream,
          {.rule = rule, .logits = logits, .choice = choice, .weights = o.result({T, 3})});
      machine.stream->synchronize();
      const std::vector<int32_t> found = integers_of(choice);
      for (int64_t t = 0; t < T; ++t) {
        const auto of_token = found.begin() + 3 * t;
        EXPECT_EQ(std::vector<int32_t>(of_token, of_token + 3),
                  (t % 2 == 0 ? std::vector<int32_t>{0, 1, 2} : std::vector<int32_t>{1, 3, 5}));
      }
    }
  });
}

// Masking with zero instead of minus infinity would choose experts of other groups.
TEST(RouterForwardTest, negative_scores_stay_inside_their_groups) {
  for_each_machine([](Machine& machine) {
    constexpr int64_t T = 40, E = 16;
    const RouterSpec rule = {.experts = E,
                             .chosen = 6,
                             .score = RouterScore::sigmoid,
                             .groups = 4,
                             .chosen_groups = 2,
                             .has_bias = true};
    Operands o(2, machine);
    const Tensor choice = index_result(o, {T, 6});
    ops::router_forward(*machine.stream,
                        {.rule = rule,
                         .logits = o.input({T, E}),
                         .bias = o.input({E}, {}, [](int64_t, int64_t) { return -3.0; }),
                         .choice = choice,
                         .weights = o.result({T, 6})});
    machine.stream->synchronize();
    const std::vector<int32_t> found = integers_of(choice);
    for (int64_t t = 0; t < T; ++t) {
      std::vector<int32_t> groups;
      for (int64_t k = 0; k < 6; ++k) groups.push_back(found[static_cast<size_t>(6 * t + k)] / 4);
      std::ranges::sort(groups);
      const auto others = std::ranges::unique(groups);
      groups.erase(others.begin(), others.end());
      EXPECT_EQ(groups.size(), 2U) << "token " << t;
    }
  });
}

// Recompute: the weights of given choices, with the bits of the first time.
TEST(RouterForwardTest, given_choices_are_kept) {
  for_each_machine([](Machine& machine) {
    for (const RouterSpec& rule : rules()) {
      constexpr int64_t T = 33;
      const int64_t E = rule.experts, K = rule.chosen;
      Operands o(3, machine);
      RouterForwardArgs args = {.rule = rule,
                                .logits = o.input({T, E}),
                                .choice = index_result(o, {T, K}),
                                .weights = o.result({T, K})};
      if (rule.has_bias) args.bias = o.input({E}, {.size = 0.1F});
      ops::router_forward(*machine.stream, args);
      machine.stream->synchronize();
      const std::vector<int32_t> choice = integers_of(args.choice);
      const std::vector<double> weights = values_of(args.weights);
      args.is_chosen = true;
      args.weights = o.result({T, K});
      ops::router_forward(*machine.stream, args);
      machine.stream->synchronize();
      EXPECT_EQ(integers_of(args.choice), choice);
      EXPECT_EQ(values_of(args.weights), weights);
      // Other choices are not replaced by better ones.
      std::vector<int32_t> reversed = choice;
      std::ranges::reverse(reversed);
      const Tensor other = o.integers(reversed);
      args.choice = other.reshape({T, K});
      ops::router_forward(*machine.stream, args);
      machine.stream->synchronize();
      EXPECT_EQ(integers_of(other), reversed);
    }
  });
}

TEST(RouterForwardTest, counts_are_exact) {
  for_each_machine([](Machine& machine) {
    constexpr int64_t T = 1000, E = 24, K = 4;
    const RouterSpec rule = {.experts = E, .chosen = K, .score = RouterScore::sigmoid};
    const RouterStats at = {E};
    Operands o(4, machine);
    const Tensor stats = o.result({at.size()}), load = o.result({sequences_of(T), E});
    const Tensor choice = index_result(o, {T, K});
    std::fill_n(reinterpret_cast<float*>(stats.data), at.size(), 3.0F);
    ops::router_forward(*machine.stream, {.rule = rule,
                                          .logits = o.input({T, E}),
                                          .choice = choice,
                                          .weights = o.result({T, K}),
                                          .stats = stats,
                                          .load = load,
                                          .first_row = first_row,
                                          .sequence_rows = sequence_rows});
    machine.stream->synchronize();
    std::vector<double> counts(static_cast<size_t>(E), 3);
    std::vector<double> loads(static_cast<size_t>(load.elements()), 0);
    const std::vector<int32_t> found = integers_of(choice);
    for (int64_t i = 0; i < T * K; ++i) {
      const int32_t e = found[static_cast<size_t>(i)];
      counts[static_cast<size_t>(e)] += 1;
      loads[static_cast<size_t>((first_row + i / K) / sequence_rows * E + e)] += 1;
    }
    const std::vector<double> stat = values_of(stats);
    EXPECT_EQ(values_of(load), loads);
    EXPECT_EQ(std::vector<double>(stat.begin(), stat.begin() + E), counts);
    double probs = 0;
    for (int64_t e = 0; e < E; ++e) probs += stat[static_cast<size_t>(at.probs() + e)] - 3;
    EXPECT_NEAR(probs, T, 1e-3);
    EXPECT_EQ(stat[static_cast<size_t>(at.tokens())], T + 3);
    for (const int64_t i : {at.dropped(), at.lost(), at.overflow()}) {
      EXPECT_EQ(stat[static_cast<size_t>(i)], 3);
    }
  });
}

// ---- backward

struct Scales {
  float aux = 0, z = 0;
};

void backward(const RouterSpec& rule, int64_t T, const Scales& scales, DType dtype, Operands& o,
              Stream& stream) {
  const int64_t E = rule.experts, K = rule.chosen, rows = T * K + 5;
  std::vector<int32_t> choice, place;
  for (int64_t i = 0; i < T * K; ++i) {
    choice.push_back(static_cast<int32_t>((i / K * 7 + i % K) % E));
    place.push_back(static_cast<int32_t>(i % 6 == 5 ? -1 : (i * 5 + 2) % rows));
  }
  RouterBackwardArgs args = {
      .rule = rule,
      .logits = o.input({T, E}, {.gap = 8, .size = 2}),
      .choice = o.integers(choice).reshape({T, K}),
      .place = o.integers(place).reshape({T, K}),
      .row_grads = o.input({rows}),
      .aux_scale = scales.aux,
      .z_scale = scales.z,
      .dlogits = o.result({T, E}, {.dtype = dtype, .gap = 8, .terms = 16 * E, .floor = 0.1})};
  if (scales.aux != 0 || scales.z != 0) {
    std::vector<int32_t> labels;
    for (int64_t t = 0; t < T; ++t) labels.push_back(t % 4 == 3 ? -1 : static_cast<int32_t>(t));
    args.labels = o.integers(labels);
  }
  if (scales.aux != 0) {
    args.load = o.input({sequences_of(T), E}, {}, [](int64_t s, int64_t e) {
      return static_cast<double>(1 + (3 * s + 5 * e) % 11);
    });
    args.first_row = first_row;
    args.sequence_rows = sequence_rows;
  }
  ops::router_backward(stream, args);
}

std::vector<Case> backwards() {
  std::vector<Case> list;
  for (const RouterSpec& rule : rules()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t tokens : {1, 150}) {
        for (const Scales& scales : {Scales{}, {0.5F, 0}, {0, 0.2F}, {0.5F, 0.2F}}) {
          list.push_back(
              {fmt::format("{}, aux {} z {} {}", name_of(rule, tokens), scales.aux, scales.z,
                           base::name_of(dtype)),
               [=](Operands& o, Stream& s) { backward(rule, tokens, scales, dtype, o, s); }});
        }
      }
    }
  }
  return list;
}

TEST(RouterBackwardTest, cpu_agrees_with_the_reference) { expect_cpu_agrees(backwards()); }
TEST(RouterBackwardTest, cuda_agrees_with_the_reference) { expect_cuda_agrees(backwards()); }
TEST(RouterBackwardTest, bits_do_not_depend_on_threads) {
  expect_bits_do_not_depend_on_threads(backwards());
}

// The loss is sum of g w + aux_scale sum of load/sum(load) q + z_scale/2 sum of lse^2, where w and
// q, lse are results of the reference's forward.
TEST(RouterBackwardTest, the_reference_agrees_with_finite_differences) {
  constexpr int64_t T = 3;
  for (const RouterSpec& rule : rules()) {
    if (rule.experts > 16 || rule.has_bias) continue;
    const int64_t E = rule.experts, K = rule.chosen;
    const RouterStats at = {E};
    Machine machine(reference_kernels());
    const Kernels& table = machine.device.kernels();
    Operands o(6, machine);
    Reals z({T, E}, 7), g({T * K}, 8), w({T, K}), stats({at.size()}), dz({T, E});
    const Tensor choice = index_result(o, {T, K});
    const Tensor load =
        o.input({1, E}, {}, [](int64_t, int64_t e) { return static_cast<double>(1 + 5 * e % 7); });
    std::vector<int32_t> place(static_cast<size_t>(T * K));
    std::iota(place.begin(), place.end(), 0);
    RouterForwardArgs args = {
        .rule = rule, .logits = z.tensor, .choice = choice, .weights = w.tensor};
    table.router_forward(*machine.stream, args);
    args.is_chosen = true;
    args.stats = stats.tensor;
    const float aux = 0.5F, z_scale = 0.25F;
    table.router_backward(*machine.stream, {.rule = rule,
                                            .logits = z.tensor,
                                            .choice = choice,
                                            .place = o.integers(place).reshape({T, K}),
                                            .row_grads = g.tensor,
                                            .load = load,
                                            .labels = o.integers(std::vector<int32_t>(T)),
                                            .sequence_rows = T,
                                            .aux_scale = aux,
                                            .z_scale = z_scale,
                                            .dlogits = dz.tensor});
    const std::vector<double> loads = values_of(load);
    double pairs = 0;
    for (const double count : loads) pairs += count;
    expect_gradient(name_of(rule, T), z, dz, [&] {
      std::ranges::fill(stats.values, 0.0);
      table.router_forward(*machine.stream, args);
      double total = inner(g, w);
      for (int64_t e = 0; e < E; ++e) {
        total += static_cast<double>(aux) * loads[static_cast<size_t>(e)] / pairs *
                 stats.values[static_cast<size_t>(at.probs() + e)];
      }
      return total +
             static_cast<double>(z_scale) / 2 * stats.values[static_cast<size_t>(at.lse2())];
    });
  }
}

// ---- counts

TEST(RouterFillTest, finds_the_fullest_block) {
  for_each_machine([](Machine& machine) {
    Operands o(8, machine);
    const Tensor counts = o.integers({3, 1, 4, 1, 5, 9, 2, 6});
    for (const auto& [blocks, before, after] :
         {std::tuple{1, 0.0, 31.0}, {2, 0.0, 22.0}, {4, 0.0, 14.0}, {8, 11.0, 11.0}}) {
      const Tensor fill = o.result({1});
      const auto first = static_cast<float>(before);
      std::memcpy(fill.data, &first, sizeof(first));
      ops::router_fill(*machine.stream, {.counts = counts, .blocks = blocks, .fill = fill});
      machine.stream->synchronize();
      EXPECT_EQ(values_of(fill).front(), after) << blocks << " blocks";
    }
  });
}

TEST(RouterOverflowTest, adds_to_the_sums_of_the_step) {
  for_each_machine([](Machine& machine) {
    constexpr int64_t E = 5;
    const RouterStats at = {E};
    Operands o(9, machine);
    const Tensor stats = o.input(
        {at.size()}, {}, [&](int64_t i, int64_t) { return i == at.overflow() ? 1234567.0 : 99.0; });
    StepSums sums = {};
    sums.overflow = 3;
    const Tensor memory = o.scratch({static_cast<int64_t>(sizeof(sums))}, DType::u8);
    std::memcpy(memory.data, &sums, sizeof(sums));
    ops::router_overflow(*machine.stream, {.stats = stats, .experts = E, .sums = memory});
    machine.stream->synchronize();
    std::memcpy(&sums, memory.data, sizeof(sums));
    EXPECT_EQ(sums.overflow, 1234570);
  });
}

// ---- bias

TEST(RouterBiasTest, moves_against_the_load_unless_the_step_is_skipped) {
  for_each_machine([](Machine& machine) {
    for (const int32_t skip : {0, 1}) {
      constexpr int64_t E = 70;
      const RouterStats at = {E};
      Operands o(7, machine);
      // The mean of counts is 3 exactly.
      const Tensor stats = o.input({at.size()}, {}, [](int64_t i, int64_t) {
        return i < E ? static_cast<double>(1 + i % 5) : 99.0;
      });
      const Tensor bias =
          o.input({E}, {}, [](int64_t e, int64_t) { return 0.25 * static_cast<double>(e); });
      StepState state = {};
      state.skip = skip;
      const Tensor updated = o.result({E});
      std::memcpy(updated.data, bias.data, static_cast<size_t>(bias.bytes()));
      ops::router_bias(*machine.stream,
                       {.stats = stats, .state = o.state(state), .bias = updated, .rate = 0.125F});
      machine.stream->synchronize();
      const std::vector<double> found = values_of(updated);
      for (int64_t e = 0; e < E; ++e) {
        const double sign = e % 5 < 2 ? 1 : e % 5 > 2 ? -1 : 0;
        EXPECT_EQ(found[static_cast<size_t>(e)],
                  0.25 * static_cast<double>(e) + (skip != 0 ? 0 : 0.125 * sign));
      }
    }
  });
}

}  // namespace
}  // namespace trireme::kernels::experts_router_test
