// SPDX-License-Identifier: Apache-2.0
// The guardian of a launcher: it starts a supervisor, forwards signals to it, and starts it again
// if it dies or freezes, with all that it left (keeper.h). It has no connections and does nothing
// else, so that there is little that could end it.
#pragma once

#include "agent/guardian/role.h"

namespace trireme::agent {

constexpr double beat_seconds = 0.25;         // of each to the other
constexpr double silent_seconds = 10;         // one that does not beat for longer is replaced
constexpr double inattention_seconds = 2;     // one that did not run for longer judges no silence
constexpr int max_deaths = 5;                 // of a supervisor, within
constexpr double max_deaths_seconds = 10;

// Starts a supervisor and returns the exit code of the job: that of the supervisor, or 75 if one
// after another died and the ranks were requested to stop. Throws IoError.
int guard(const ProgramCall& call);
// The same for a guardian that a supervisor has started in place of another one.
int guard_again(const ProgramCall& call, Inheritance inherited);

}  // namespace trireme::agent
