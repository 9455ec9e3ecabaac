// SPDX-License-Identifier: Apache-2.0
// Many lives of one process: it forms groups with the same other processes again and again, trains
// a tiny model in each life, and is aborted in the middle of some.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"

namespace trireme::tests {

struct LivesOptions {
  int rank = 0, ranks = 1;
  std::string store;  // address
  bool is_nccl = false;
  int64_t lives = 1;
  int64_t aborted_of_ten = 5;  // of ten lives, the first ones
  uint64_t seed = 1;
};

// Prints, one a line,
//   "rank R lives N aborted A sealed S wrong W other O": of the aborted lives, in how many
//     Engine::sealed_step() had a value, and how many of these states were not that of a quiet run;
//     how many of the other lives had not the bits of a quiet run
//   "rank R grew by D descriptors T threads H bytes G device bytes": from the end of the first
//     lives to the end
void live(const LivesOptions&, device::Device&);

// Starts the ranks and a store, and returns what they print. Expects that they end with 0.
std::string lives_of(int ranks, const std::string& options, double deadline_seconds);

// Expects no wrong state in these lines of all ranks, and that nothing has grown but what NCCL keeps
// of aborted lives. Returns the share of aborted lives that were sealed.
double expect_lives(const std::string& lines, int ranks, int64_t lives, bool is_nccl = false);

}  // namespace trireme::tests
