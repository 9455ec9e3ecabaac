// SPDX-License-Identifier: Apache-2.0
// Rules of thumb about failures and checkpoints. Trireme has no model of failures; this file
// simulates runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "plan/price/run_cost.h"
#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

struct Failing {
  double interval = 0;  // seconds of work between saves
  double save = 0;      // seconds that a save stalls the run
  double mean = 0;      // seconds between failures

  // Young's approximation for the best interval.
  double expected_loss() const { return std::sqrt(2 * save / mean); }
};

// Returns the fraction of a long run that saves take or failures undo. Failures are random; work
// since the last save is repeated.
double lost_part(const Failing& run) {
  std::mt19937_64 random(1);
  const auto next = [&] {
    const double uniform = (static_cast<double>(random() >> 11U) + 0.5) * 0x1p-53;
    return -run.mean * std::log(uniform);
  };
  double kept = 0, total = 0;
  for (int failure = 0; failure < 100000; ++failure) {
    const double until = next();
    kept += std::floor(until / (run.interval + run.save)) * run.interval;
    total += until;
  }
  return 1 - kept / total;
}

// Arithmetic on published counts: there is nothing of Trireme to assert.
Row mtbf_row() {
  const double cluster = 54.0 * 24 / 419, each = cluster * 16384 / 1000;
  const double bloom = 3.5 * 30 * 24 / 30 * 384 / 1000;
  return {"\"Llama 3: 7.7 h between failures per 1,000 GPUs\"; \"BLOOM: 75 h\"",
          fmt::format("419 failures in 54 days on 16,384 GPUs are {:.1f} h for the cluster and "
                      "{:.0f} h per 1,000 GPUs; BLOOM's 30 in 3.5 months on 384 are {:.0f} h",
                      cluster, each, bloom),
          "do not hold", Evidence::arithmetic};
}

Row floor_row() {
  Failing best{.save = 20, .mean = 25000};
  best.interval = plan::best_save_interval(best.save, best.mean);
  Failing half = best, twice = best;
  half.interval /= 2;
  twice.interval *= 2;
  const double at = lost_part(best), shorter = lost_part(half), longer = lost_part(twice);
  EXPECT_LT(at, shorter);
  EXPECT_LT(at, longer);
  EXPECT_NEAR(at, best.expected_loss(), 0.003);
  return {"\"sqrt(2 C tau) is a floor for the interval\" and \"checkpoint more often\"",
          fmt::format("C = 20 s, tau = 25,000 s, simulated over 100,000 failures: {:.1f} % lost at "
                      "1,000 s, {:.1f} % at 500 s, {:.1f} % at 2,000 s",
                      100 * at, 100 * shorter, 100 * longer),
          "contradict each other: it is the best interval if saves never fail, and the longest "
          "sensible one because they may",
          Evidence::formula};
}

Row correlated_row() {
  const Failing single{.interval = 1000, .save = 20, .mean = 25000};
  // The same number of GPUs fails, eight at a time.
  Failing bursts = single;
  bursts.mean *= 8;
  Failing rarer = bursts;
  rarer.interval = plan::best_save_interval(bursts.save, bursts.mean);
  const double alone = lost_part(single), together = lost_part(bursts), longer = lost_part(rarer);
  EXPECT_LT(together, alone);
  EXPECT_LT(longer, together);
  EXPECT_NEAR(longer, rarer.expected_loss(), 0.002);
  return {"\"Correlated failures demand more frequent checkpoints\"",
          fmt::format("the same number of GPUs lost eight at a time: {:.1f} % lost instead of "
                      "{:.1f} % at 1,000 s, and {:.1f} % at {:.0f} s",
                      100 * together, 100 * alone, 100 * longer, rarer.interval),
          "does not hold: fewer incidents allow longer intervals; they demand several checkpoints "
          "and copies across failure domains",
          Evidence::formula};
}

// A statement without a number: nothing is asserted.
Row xid_row() {
  return {"\"Evict a node on every XID 13 or 31\"",
          "nothing to compute: 13 (exception of the graphics engine) and 31 (page fault) are "
          "usually faults of the program",
          "does not hold: run on another node; if the error recurs there, the code is at fault",
          Evidence::none};
}

}  // namespace

std::vector<Row> failure_contradictions() {
  return {mtbf_row(), floor_row(), correlated_row(), xid_row()};
}

}  // namespace trireme::tests
