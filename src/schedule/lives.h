// SPDX-License-Identifier: Apache-2.0
// The lifetimes of a micro-batch's slots on a stage, as positions in the program of the rank that
// runs it. Memory is laid out and predicted from them.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace trireme::schedule {

// The pass of a micro-batch through one stage. Positions are inclusive: a lifetime that begins at
// one of them overlaps one that ends there.
struct Passage {
  int stage = 0, microbatch = 0;
  int begin = 0;  // its input arrives: RecvX, or F of the previous stage on the same rank, or F
  int f = 0;
  int gradient = 0;  // its output's gradient arrives: RecvDy, or B or BW of the next stage, or B
  int b = 0;         // B or BW
  int w = 0;         // W or BW
  bool operator==(const Passage&) const = default;
};

// Returns the passages of one rank, in order of `begin`. REQUIRES: check() finds no fault.
std::vector<Passage> passages(const Schedule&, int rank);

// Returns the stages that the rank runs, in ascending order.
std::vector<int> stages_of(const Schedule&, int rank);

bool splits_backward(const std::vector<Action>& program);  // has it a B with a separate W?
bool has_pairs(const std::vector<Action>& program);

}  // namespace trireme::schedule
