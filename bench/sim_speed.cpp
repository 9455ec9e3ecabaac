// SPDX-License-Identifier: Apache-2.0
// Measures how many actions per second the simulator plays on one core, messages counted as
// actions. Prints one line per schedule: the best of several runs, without and with shared wires,
// and with all outputs.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "schedule/catalogue.h"
#include "sim/sim.h"

namespace {

using namespace trireme;

double best_rate(const schedule::Schedule& schedule, const sim::Costs& costs,
                 const sim::Links& links, const sim::Options& options) {
  double best = 0;
  for (int run = 0; run < 9; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    const sim::Result result = sim::simulate(schedule, costs, links, options);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(result.actions) / seconds.count());
  }
  return best / 1e6;
}

}  // namespace

int main() {
  fmt::print("million actions/s        own wires  shared wires  timeline  jitter\n");
  for (const char* name : {"1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"}) {
    for (const int ranks : {8, 64}) {
      const schedule::Schedule schedule =
          schedule::add_p2p(schedule::generate(name, {ranks, 1024, 0}).value());
      const sim::Costs costs =
          sim::uniform_costs(schedule.stages(), {}, {0, 1, 0, 0}, /*output_bytes=*/1);
      const sim::Links own{{{0.01, 100}}, {}};
      const sim::Links shared = sim::node_links({ranks, 8, {0.001, 1000}, {0.01, 100}});
      fmt::print("{:<14}{:>3} ranks  {:>9.1f}  {:>12.1f}  {:>8.1f}  {:>6.1f}\n", name, ranks,
                 best_rate(schedule, costs, own, {}), best_rate(schedule, costs, shared, {}),
                 best_rate(schedule, costs, own, {.timeline = true}),
                 best_rate(schedule, costs, own, {.jitter = 0.1}));
    }
  }
}
