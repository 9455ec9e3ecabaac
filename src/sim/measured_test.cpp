// SPDX-License-Identifier: Apache-2.0
#include "sim/measured.h"

#include <gtest/gtest.h>

#include "schedule/catalogue.h"

namespace trireme::sim {
namespace {

using schedule::Schedule;

Schedule whole(const char* name, int ranks, int microbatches) {
  const auto made = schedule::generate(name, {ranks, microbatches, 0});
  EXPECT_TRUE(made) << made.reason();
  return schedule::add_tied(schedule::add_reduce(schedule::add_p2p(made.value())));
}

// The costs and times of a simulated step that is treated as a measured one are its original ones.
TEST(MeasuredTest, a_simulated_step_round_trips) {
  for (const char* name : {"1f1b", "interleaved", "zb-h1", "zb-v"}) {
    const Schedule schedule = whole(name, 3, 6);
    Costs costs;
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      const double f = 1 + 0.1 * stage, b = 1.5 + 0.05 * stage, w = 0.75;
      costs.seconds.push_back({.f = f, .b = b, .w = w, .bw = b + w, .fb = f + b + w});
    }
    costs.output_bytes.assign(costs.seconds.size(), 0);
    const Links links{{{.latency = 0.125}}, {}};
    const Result first = simulate(schedule, costs, links, {.timeline = true});
    const Costs found = measured_costs(schedule, first.timeline);
    ASSERT_EQ(found.seconds.size(), costs.seconds.size());
    for (size_t stage = 0; stage < costs.seconds.size(); ++stage) {
      EXPECT_NEAR(found.seconds[stage].f, costs.seconds[stage].f, 1e-9) << name;
      EXPECT_NEAR(found.seconds[stage].bw, costs.seconds[stage].bw, 1e-9) << name;
    }
    EXPECT_NEAR(measured_latency(schedule, first.timeline), 0.125, 0.125) << name;
    const Result measured = measured_result(schedule, first.timeline);
    EXPECT_NEAR(measured.makespan, first.makespan, 1e-9) << name;
    EXPECT_NEAR(measured.step_time, first.step_time, 1e-9) << name;
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_NEAR(measured.ranks[rank].busy, first.ranks[rank].busy, 1e-9) << name;
    }
    EXPECT_NEAR(simulate(schedule, found, links, {}).makespan, first.makespan, 1e-9) << name;
  }
}

TEST(MeasuredTest, pairs_count_once) {
  const Schedule schedule = whole("dualpipev", 2, 6);
  const Costs costs =
      uniform_costs(schedule.stages(), {.f = 1, .b = 1, .w = 1, .bw = 2, .fb = 2.5}, {}, 0);
  const Result first = simulate(schedule, costs, {}, {.timeline = true});
  const Result measured = measured_result(schedule, first.timeline);
  EXPECT_NEAR(measured.ranks[0].busy, first.ranks[0].busy, 1e-9);
  EXPECT_NEAR(measured_costs(schedule, first.timeline).seconds[0].fb, 2.5, 1e-9);
}

}  // namespace
}  // namespace trireme::sim
