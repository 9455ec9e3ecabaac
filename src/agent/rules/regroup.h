// SPDX-License-Identifier: Apache-2.0
// Whether a run goes on after a verdict, with another epoch of the same processes: a pure function.
// Node 0 calls it with what it knows.
#pragma once

#include <cstdint>
#include <string>

#include "comm/failure/verdict.h"
#include "comm/world/epochs.h"

namespace trireme::agent {

struct EpochFacts {
  bool has_ended_well = false;  // a rank has done all its work: it cannot come back
  // The newest step that ranks have begun, in this epoch and in all before it; -1: none.
  int64_t reached = -1, reached_before = -1;
  // The newest checkpoint, now and when the epoch began; -1: none.
  int64_t saved = -1, saved_before = -1;
  int64_t fruitless = 0;  // epochs before this one, in a row, without progress
};

struct NextCourse {
  comm::Course course = comm::Course::end;
  int64_t fruitless = 0;  // EpochFacts::fruitless of the next epoch
  std::string reason;     // why the run is given up; may be empty
};
// Three epochs in a row that neither begin a newer step nor save one end the run.
NextCourse course_after(const comm::Verdict&, const EpochFacts&);

}  // namespace trireme::agent
