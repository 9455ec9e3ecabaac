// SPDX-License-Identifier: Apache-2.0
// How long a micro-batch's slots on a stage are needed, as positions in the program of the rank
// that runs it. Memory is laid out and predicted from this.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

// The micro-batch's way through one stage. Positions are inclusive: what begins at one of them is
// not over before what ends there.
struct Passage {
  int stage = 0, microbatch = 0;
  int begin = 0;  // its input comes: RecvX, or F of the stage before on the same rank, or F
  int f = 0;
  int gradient = 0;  // its output's gradient comes: RecvDy, or B or BW of the stage behind, or B
  int b = 0;         // B or BW
  int w = 0;         // W or BW
  bool operator==(const Passage&) const = default;
};

// Of one rank, in order of `begin`. REQUIRES: check() finds no fault.
std::vector<Passage> passages(const Schedule&, int rank);

// Stages that the rank runs, in rising order.
std::vector<int> stages_of(const Schedule&, int rank);

bool splits_backward(const std::vector<Action>& program);  // some B and W are apart
bool has_pairs(const std::vector<Action>& program);

}  // namespace trireme::schedule
