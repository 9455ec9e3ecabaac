// SPDX-License-Identifier: Apache-2.0
#include "sim/sim.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/catalogue.h"
#include "sim/made_test.h"

namespace trireme::sim {
namespace {

using schedule::add_p2p;
using schedule::from_text;
using schedule::Schedule;

Costs ones(const Schedule& schedule, double output_bytes = 0) {
  return uniform_costs(schedule.stages(), {}, {.f_to_b = 1, .f_to_w = 2, .b_to_w = 4},
                       output_bytes);
}

TEST(SimTest, one_micro_batch_over_two_ranks_to_the_second) {
  const Schedule schedule = made("gpipe", 2, 1);
  const Links links{{{.latency = 0.5, .bytes_per_second = 8}}, {}};
  const Result result = simulate(schedule, ones(schedule, 4), links, {.timeline = true});
  // F, 4 bytes at 8 bytes per second, half a second of latency, F, BW, the message back, BW.
  using Spans = std::vector<Span>;
  EXPECT_EQ(result.timeline[0], (Spans{{0, 1}, {1, 1}, {1, 6}, {6, 8}}));
  EXPECT_EQ(result.timeline[1], (Spans{{0, 2}, {2, 3}, {3, 5}, {5, 5}}));
  EXPECT_EQ(result.step_time, 8);
  EXPECT_EQ(result.makespan, 8);
  EXPECT_EQ(result.actions, 8);
  EXPECT_EQ(result.ranks[0].busy, 3);
  EXPECT_EQ(result.ranks[0].exposed, 1);  // of the 5 it waited
  EXPECT_EQ(result.ranks[1].exposed, 0);  // before its step began
  EXPECT_EQ(result.ranks[1].begin, 2);
  EXPECT_EQ(result.bubble_fraction(), (8 - 3 + 8 - 3) / 16.0);
}

TEST(SimTest, memory_follows_the_lifetimes_and_ends_at_zero) {
  const Schedule schedule = from_text("0F0 0F1 0B0 0W0 0B1 0W1\n").value();
  const Result result = simulate(schedule, ones(schedule), {}, {.timeline = true});
  const std::vector<MemoryPoint> points = {{0, 3}, {1, 6}, {2, 10}, {3, 9},
                                           {4, 3}, {4, 7}, {5, 6},  {6, 0}};
  EXPECT_EQ(result.memory[0], points);
  EXPECT_EQ(result.ranks[0].peak_bytes, 10);
  for (const schedule::Named& named : schedule::catalogue()) {
    const Schedule any = made(named.name, 4, 8);
    const Result played = simulate(any, ones(any), {}, {.timeline = true});
    for (const auto& memory : played.memory) EXPECT_EQ(memory.back().bytes, 0) << named.name;
  }
}

TEST(SimTest, early_recompute_fills_the_wait_and_its_memory_is_counted) {
  const Schedule plain = schedule::one_f_one_b(4, 8);
  Costs costs = uniform_costs(4, {.r = 1}, {.f_to_b = 1, .r_to_w = 5}, 0);
  const Result late = simulate(add_p2p(schedule::add_recompute(plain)), costs, {}, {});
  // Without a wait that hides it, every R would lengthen the step.
  EXPECT_LT(late.step_time, (8 + 3) * 4);
  EXPECT_EQ(late.ranks[3].peak_bytes, 6);
  const Result early = simulate(add_p2p(schedule::add_recompute(plain, 2)), costs, {}, {});
  EXPECT_GT(early.ranks[0].peak_bytes, late.ranks[0].peak_bytes);
}

// The cost of the pair counts once; both actions have its span.
TEST(SimTest, an_overlapped_pair_has_a_separate_cost) {
  const Schedule schedule = from_text("0F0 0F1&0BW0 0F2&0B1 0W1 0BW2\n").value();
  const Result result =
      simulate(schedule, uniform_costs(1, {.fb = 2.5}, {}, 0), {}, {.timeline = true});
  using Spans = std::vector<Span>;
  EXPECT_EQ(result.timeline[0],
            (Spans{{0, 1}, {1, 3.5}, {1, 3.5}, {3.5, 5}, {3.5, 5}, {5, 6}, {6, 8}}));
}

TEST(SimTest, a_shared_wire_serves_first_come_first_served) {
  // Ranks 0 and 1 send to 2 and 3 over one wire that takes 2 seconds per message.
  const Schedule schedule = add_p2p(from_text("0F0 0BW0\n0F1 0BW1\n1F0 1BW0\n1F1 1BW1\n").value());
  Costs costs = uniform_costs(2, {}, {}, 2);
  Links links{{{0, 1}}, std::vector<int>(16, 0)};
  const Result shared =
      simulate(schedule, costs, links, {.slowdown = {2, 1, 1, 1}, .timeline = true});
  EXPECT_EQ(shared.timeline[3][0].end, 3);  // ready at 1, arrives at 3
  EXPECT_EQ(shared.timeline[2][0].end, 5);  // ready at 2, waits for the wire
  const Result own = simulate(schedule, costs, {{{0, 1}}, {}}, {.slowdown = {2, 1, 1, 1}});
  EXPECT_LT(own.makespan, shared.makespan);
}

// Both ways of simulating give the same results if each pair has a separate wire.
TEST(SimTest, simulating_in_the_order_of_time_changes_nothing_on_separate_wires) {
  for (const schedule::Named& named : schedule::catalogue()) {
    const Schedule schedule = made(named.name, 4, 8);
    const Link link{0.25, 0};
    const Links all_inside = node_links({4, 4, link, {}});
    for (const double jitter : {0.0, 0.3}) {
      const Options options{.jitter = jitter, .seed = 5, .timeline = true};
      const Result own = simulate(schedule, ones(schedule, 1), {{link}, {}}, options);
      const Result ordered = simulate(schedule, ones(schedule, 1), all_inside, options);
      EXPECT_EQ(own.timeline, ordered.timeline) << named.name;
      EXPECT_EQ(own.ranks, ordered.ranks) << named.name;
    }
  }
}

TEST(SimTest, sends_that_block_stop_their_rank) {
  const Schedule schedule = made("gpipe", 2, 1);
  const Links links{{{.latency = 0.5}}, {}};
  const Result result =
      simulate(schedule, ones(schedule), links, {.sends_block = true, .timeline = true});
  EXPECT_EQ(result.timeline[0][1], (Span{1, 1.5}));
  EXPECT_EQ(result.ranks[0].exposed, 1);  // 0.5 in its send, 0.5 of the wait for the gradient
}

TEST(SimTest, jitter_is_a_function_of_the_seed) {
  const Schedule schedule = made("1f1b", 4, 16);
  const auto step = [&](uint64_t seed) {
    return simulate(schedule, ones(schedule), {}, {.jitter = 0.1, .seed = seed}).step_time;
  };
  // Literal, so that a simulation on another machine or by another build has to agree.
  EXPECT_NEAR(step(1), 60.943317537, 1e-8);
  EXPECT_NE(step(1), step(2));
  EXPECT_GT(step(1), simulate(schedule, ones(schedule), {}, {}).step_time);
}

TEST(SimTest, a_straggler_sets_the_pace) {
  const Schedule schedule = made("1f1b", 4, 64);
  const Result even = simulate(schedule, ones(schedule), {}, {});
  const Result slow = simulate(schedule, ones(schedule), {}, {.slowdown = {1, 1, 1.5, 1}});
  EXPECT_GT(slow.step_time, 64 * 3 * 1.5);
  EXPECT_LT(slow.step_time, even.step_time * 1.5);
}

TEST(SimTest, fewer_send_buffers_never_help) {
  for (const schedule::Named& named : schedule::catalogue()) {
    const Schedule schedule = made(named.name, 4, 8);
    double before = 0;
    for (const int buffers : {0, 4, 2, 1}) {
      const double step =
          simulate(schedule, ones(schedule), {}, {.send_buffers = buffers}).makespan;
      EXPECT_GE(step, before) << named.name << " " << buffers;
      before = step;
    }
  }
}

}  // namespace
}  // namespace trireme::sim
