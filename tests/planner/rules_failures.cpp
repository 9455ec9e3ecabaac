// SPDX-License-Identifier: Apache-2.0
// Sayings about failures and checkpoints. Trireme has no model of failures; runs are played here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/planner/rules_rig.h"

namespace trireme::tests {
namespace {

struct Failing {
  double interval = 0;  // of work between saves
  double save = 0;      // seconds that a save holds the run
  double mean = 0;      // between failures
};

// Of the time of a long run, the part that saves take or failures undo. Failures come at random;
// work since the last save is done again.
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

Row mtbf_row() {
  const double cluster = 54.0 * 24 / 419, each = cluster * 16384 / 1000;
  const double bloom = 3.5 * 30 * 24 / 30 * 384 / 1000;
  EXPECT_NEAR(cluster, 3.1, 0.05);
  EXPECT_NEAR(each, 50, 1);
  EXPECT_NEAR(bloom, 32, 1);
  return {"\"Llama 3: 7.7 h between failures per 1,000 GPUs\"; \"BLOOM: 75 h\"",
          fmt::format("arithmetic: 419 in 54 days on 16,384 GPUs are {:.1f} h for the cluster and "
                      "{:.0f} h per 1,000; BLOOM's 30 in 3.5 months on 384 are {:.0f} h",
                      cluster, each, bloom),
          "do not hold"};
}

Row floor_row() {
  const Failing best{.interval = 1000, .save = 20, .mean = 25000};
  Failing half = best, twice = best;
  half.interval /= 2;
  twice.interval *= 2;
  const double at = lost_part(best), shorter = lost_part(half), longer = lost_part(twice);
  EXPECT_LT(at, shorter);
  EXPECT_LT(at, longer);
  EXPECT_NEAR(at, 0.04, 0.003);
  return {
      "\"sqrt(2 C tau) is a floor for the interval\" and \"checkpoint more often\"",
      fmt::format("C = 20 s, tau = 25,000 s, played over 100,000 failures: {:.1f} % lost at 1,000 "
                  "s, {:.1f} % at 500 s, {:.1f} % at 2,000 s",
                  100 * at, 100 * shorter, 100 * longer),
      "contradict each other: it is the best interval if saves are sound, and as saves may not "
      "be, the longest"};
}

Row correlated_row() {
  const Failing single{.interval = 1000, .save = 20, .mean = 25000};
  // As many GPUs die, eight at a time.
  Failing bursts = single;
  bursts.mean *= 8;
  Failing rarer = bursts;
  rarer.interval = std::sqrt(2 * bursts.save * bursts.mean);
  const double alone = lost_part(single), together = lost_part(bursts), longer = lost_part(rarer);
  EXPECT_LT(together, alone);
  EXPECT_LT(longer, together);
  return {"\"Correlated failures demand more frequent checkpoints\"",
          fmt::format("as many GPUs lost eight at a time: {:.1f} % instead of {:.1f} % at 1,000 s, "
                      "and {:.1f} % at {:.0f} s",
                      100 * together, 100 * alone, 100 * longer, rarer.interval),
          "does not hold: fewer incidents want longer intervals; what they demand is several "
          "generations and copies across failure domains"};
}

Row xid_row() {
  return {"\"Evict a node on every XID 13 or 31\"",
          "nothing to compute: 13 (exception of the graphics engine) and 31 (page fault) are as a "
          "rule of the program",
          "does not hold: run again elsewhere; if it recurs there, the fault is in the code"};
}

}  // namespace

std::vector<Row> failure_contradictions() {
  return {mtbf_row(), floor_row(), correlated_row(), xid_row()};
}

}  // namespace trireme::tests
