// SPDX-License-Identifier: Apache-2.0
#include "plan/price/collective.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/samples_test.h"

namespace trireme::plan {
namespace {

constexpr double near_rate = 100e9, far_rate = 10e9, near_latency = 1e-6, far_latency = 5e-6;

spec::Machine cluster() {
  spec::Machine m;
  m.domain = {.size = 8, .link = {near_rate, near_latency}, .reach = 1};
  m.network.link = {far_rate, far_latency};
  m.network.reach = 1;
  return m;
}

constexpr std::array<Collective, 4> all_kinds = {Collective::all_reduce, Collective::all_gather,
                                                 Collective::reduce_scatter,
                                                 Collective::all_to_all};

TEST(Collective, ring_times_match_the_textbook_formulas) {
  const double bytes = 1e9;
  for (const double n : {2.0, 4.0, 8.0}) {
    const Group group{static_cast<int64_t>(n), 1};
    const double once = (n - 1) / n * bytes / near_rate;
    EXPECT_NEAR(collective_seconds(cluster(), Collective::all_reduce, group, bytes),
                2 * once + 2 * (n - 1) * near_latency, 1e-12);
    EXPECT_NEAR(collective_seconds(cluster(), Collective::all_gather, group, bytes),
                once + (n - 1) * near_latency, 1e-12);
    EXPECT_NEAR(collective_seconds(cluster(), Collective::reduce_scatter, group, bytes),
                once + (n - 1) * near_latency, 1e-12);
    EXPECT_NEAR(collective_seconds(cluster(), Collective::all_to_all, group, bytes),
                once + (n - 1) * near_latency, 1e-12);
  }
}

TEST(Collective, all_reduce_is_reduce_scatter_and_all_gather_if_a_ring_is_best) {
  for (const Group& group : {Group{8, 1}, Group{16, 8}, Group{64, 1}, Group{32, 2}}) {
    const double both = collective_seconds(cluster(), Collective::reduce_scatter, group, 4e9) +
                        collective_seconds(cluster(), Collective::all_gather, group, 4e9);
    const double all = collective_seconds(cluster(), Collective::all_reduce, group, 4e9);
    EXPECT_NEAR(all, both, 1e-9 * both) << group.size << " by " << group.stride;
  }
}

// spec/sums/sum_levels.h: a node sends (n-1)/n of the tensor, a rank the k-th part of that.
TEST(Collective, sums_in_the_fixed_order_take_two_levels_and_additions) {
  spec::Machine m = cluster();
  m.processor.bytes_per_second = 1e12;
  m.processor.memory_reach = 1;
  m.processor.launch_seconds = 0;
  const double bytes = 4e9;
  const double more = 59;  // rounds of 64 MiB after the first
  const auto fixed = [&](const Group& group) {
    return sum_seconds(m, Collective::reduce_scatter, group, bytes, true);
  };
  // One domain: 7 additions of an eighth, which reads two and writes one; two copies.
  EXPECT_NEAR(
      fixed({8, 1}),
      bytes * 7 / 8 / near_rate + (7 + more) * near_latency + bytes / 8 * (7 * 3 + 4) / 1e12,
      1e-12);
  // Four domains of 8: 4 x 7 additions of the domain's and 3 between domains.
  EXPECT_NEAR(fixed({32, 1}),
              bytes * 7 / 8 / near_rate + (7 + more) * near_latency + bytes / 8 * 3 / 4 / far_rate +
                  (3 + more) * far_latency + bytes / 32 * (2 * 4 + 3 * 4 * 7 + 3 * 3 + 2) / 1e12,
              1e-12);
  // No rank has a neighbour in its domain: all crosses the network.
  EXPECT_NEAR(fixed({4, 8}),
              bytes * 3 / 4 / far_rate + (3 + more) * far_latency + bytes / 4 * (3 * 3 + 4) / 1e12,
              1e-12);
  EXPECT_NEAR(sum_seconds(m, Collective::all_reduce, {32, 1}, bytes, true),
              fixed({32, 1}) + collective_seconds(m, Collective::all_gather, {32, 1}, bytes),
              1e-12);
  EXPECT_EQ(sum_seconds(m, Collective::all_reduce, {1, 1}, bytes, true), 0);
  EXPECT_EQ(sum_seconds(m, Collective::all_reduce, {32, 1}, bytes, false),
            collective_seconds(m, Collective::all_reduce, {32, 1}, bytes));
  // A switch that adds is of use to the library alone.
  m.domain.in_switch_reduction = true;
  EXPECT_GT(sum_seconds(m, Collective::all_reduce, {8, 1}, bytes, true),
            1.5 * sum_seconds(m, Collective::all_reduce, {8, 1}, bytes, false));
}

TEST(Collective, trees_carry_small_messages) {
  // 2 (n - 1) steps of a ring against 2 log2 n.
  const double bytes = 64;
  const double seconds = collective_seconds(cluster(), Collective::all_reduce, {8, 1}, bytes);
  EXPECT_NEAR(seconds, 2 * (bytes / near_rate + 3 * near_latency), 1e-15);
  EXPECT_LT(collective_seconds(cluster(), Collective::all_reduce, {1024, 8}, bytes),
            2 * 1023 * far_latency / 10);
}

TEST(Collective, one_rank_and_no_bytes_are_free) {
  for (const Collective kind : all_kinds) {
    EXPECT_EQ(collective_seconds(cluster(), kind, {1, 1}, 1e9), 0);
    EXPECT_EQ(collective_seconds(cluster(), kind, {8, 1}, 0), 0);
  }
}

TEST(Collective, strides_leave_the_domain) {
  const double bytes = 1e9;
  const auto seconds = [&](int64_t size, int64_t stride) {
    return collective_seconds(cluster(), Collective::all_gather, {size, stride}, bytes);
  };
  EXPECT_EQ(seconds(4, 1), seconds(4, 2));  // both in the domain
  EXPECT_GT(seconds(4, 4), 3 * seconds(4, 2));
  // One rank of each domain: a ring over the network.
  EXPECT_NEAR(seconds(4, 8), 0.75 * bytes / far_rate + 3 * far_latency, 1e-12);
  EXPECT_EQ(seconds(4, 8), seconds(4, 64));
  // The more ranks of a group share a domain, the more adapters carry what leaves it.
  EXPECT_LT(seconds(16, 1), seconds(16, 2));
  EXPECT_LT(seconds(16, 2), seconds(16, 8));
}

// Two levels by hand: inside the domain over fast links, then each rank with its part over its own
// adapter. The returned time is never longer.
TEST(Collective, two_levels_are_an_upper_bound) {
  Dice dice(2);
  for (int turn = 0; turn < 300; ++turn) {
    const double local = dice.of<double>({2, 4, 8}), domains = dice.of<double>({2, 4, 32, 128});
    const double bytes = dice.of<double>({1e3, 1e6, 1e8, 1e10});
    const Group group{static_cast<int64_t>(local * domains), static_cast<int64_t>(8 / local)};
    const double near = (local - 1) * (bytes / local / near_rate + near_latency);
    const double far = (domains - 1) * (bytes / local / domains / far_rate + far_latency);
    EXPECT_LE(collective_seconds(cluster(), Collective::reduce_scatter, group, bytes),
              (near + far) * (1 + 1e-12));
    EXPECT_LE(collective_seconds(cluster(), Collective::all_reduce, group, bytes),
              2 * (near + far) * (1 + 1e-12));
  }
}

TEST(Collective, an_all_reduce_is_never_cheaper_than_its_halves_alone) {
  Dice dice(4);
  for (int turn = 0; turn < 300; ++turn) {
    const Group group{dice.of<int64_t>({2, 3, 8, 24, 512}), dice.of<int64_t>({1, 2, 4, 8, 16})};
    // A tree of fewer bytes may beat a ring of half the steps.
    const double bytes = dice.between(1e8, 1e10);
    const double all = collective_seconds(cluster(), Collective::all_reduce, group, bytes);
    for (const Collective half : {Collective::all_gather, Collective::reduce_scatter}) {
      EXPECT_GE(all, collective_seconds(cluster(), half, group, bytes));
    }
  }
}

TEST(Collective, more_bytes_never_take_less) {
  for (const Collective kind : all_kinds) {
    for (const Group& group : {Group{8, 1}, Group{64, 1}, Group{64, 8}, Group{12, 1}}) {
      double before = 0;
      for (double bytes = 1; bytes < 1e11; bytes *= 3) {
        const double seconds = collective_seconds(cluster(), kind, group, bytes);
        EXPECT_GT(seconds, before);
        before = seconds;
      }
    }
  }
}

TEST(Collective, switches_that_reduce_halve_the_traffic) {
  spec::Machine m = cluster();
  const double ring = collective_seconds(m, Collective::all_reduce, {8, 1}, 1e9);
  m.domain.in_switch_reduction = true;
  const double in_switch = collective_seconds(m, Collective::all_reduce, {8, 1}, 1e9);
  EXPECT_NEAR(in_switch, 1e9 / near_rate + 2 * near_latency, 1e-12);
  EXPECT_LT(in_switch, 0.6 * ring);
  // A gather has nothing to reduce.
  EXPECT_EQ(collective_seconds(m, Collective::all_gather, {8, 1}, 1e9),
            collective_seconds(cluster(), Collective::all_gather, {8, 1}, 1e9));
  m = cluster();
  const double far = collective_seconds(m, Collective::all_reduce, {16, 8}, 1e9);
  m.network.in_network_reduction = true;
  EXPECT_LT(collective_seconds(m, Collective::all_reduce, {16, 8}, 1e9), 0.6 * far);
}

TEST(Collective, oversubscribed_links_slow_groups_that_leave_the_first_switch) {
  spec::Machine m = cluster();
  m.network.oversubscription = 4;
  m.network.nodes_below_switch = 4;
  const auto slower = [&](int64_t size) {
    return collective_seconds(m, Collective::all_gather, {size, 8}, 1e10) /
           collective_seconds(cluster(), Collective::all_gather, {size, 8}, 1e10);
  };
  EXPECT_DOUBLE_EQ(slower(4), 1);
  EXPECT_NEAR(slower(8), 4, 0.01);
}

TEST(Collective, messages_use_the_link_to_the_next_rank) {
  const spec::Machine m = cluster();
  EXPECT_DOUBLE_EQ(message_seconds(m, 1, 1e6), 1e6 / near_rate + near_latency);
  EXPECT_DOUBLE_EQ(message_seconds(m, 8, 1e6), 1e6 / far_rate + far_latency);
}

}  // namespace
}  // namespace trireme::plan
