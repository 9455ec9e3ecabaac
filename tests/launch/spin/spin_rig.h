// SPDX-License-Identifier: Apache-2.0
// Shared by tests of ranks whose device stands still: `trireme launch` starts ranks, one of which
// spins at a random point of a step, and must name it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace trireme::tests {

struct SpinCase {
  int ranks = 1;
  bool is_nccl = false;      // on one GPU; otherwise over Gloo, on devices that are threads
  bool is_captured = false;  // steps are replayed as graphs
  uint64_t seed = 1;         // of layout, rank, step and point
};

struct SpinResult {
  bool is_named = false;  // the rank that spins, as one that hangs, and no other
  // From the begin of the spin to the verdict on stderr, and max(3 s, 6 times the 99th percentile
  // of the time of steps).
  double seconds = 0, bar_seconds = 0;
  std::string text;  // what was done and what the launcher said, for people
};

// Launches the ranks, waits for the verdict, and expects that the launcher ends.
SpinResult spin_once(const SpinCase&);
// Prints the results: "100 of 100 named; 2.34 s in the median, at most 2.71 s; 0 above the bar".
void print_summary(const std::string& what, const std::vector<SpinResult>& results);

// ---- runs whose lost ranks are replaced
// Writes the configuration of a small run into the folder, and returns the options that lay it out
// as so many ranks.
std::vector<std::string> write_lost_rank_run(const Scratch& scratch, int ranks, bool is_gpu,
                                             int steps);
// Launches this run with `spinning_trireme`: a rank spins for ever after some seconds. Expects that
// it is named, and replaced, and that the weights are those of a quiet run. Prints the times of the
// recovery.
void expect_spin_is_survived(int ranks, bool is_gpu, int steps);

}  // namespace trireme::tests
