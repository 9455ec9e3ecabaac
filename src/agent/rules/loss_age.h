// SPDX-License-Identifier: Apache-2.0
// How long ago a job lost the rank that a verdict names: a pure function of the reports on ranks.
#pragma once

#include <span>

#include "comm/failure/verdict.h"

namespace trireme::agent {

// Returns the seconds since the ranks to blame beat last, or moved last if they beat but hang; 0 of
// a rank whose process has ended, and without ranks to blame. `detect_s`: a rank without a
// heartbeat for longer is silent. `reports` are by rank.
double loss_age(const comm::Verdict&, std::span<const comm::RankReport> reports, double detect_s);

}  // namespace trireme::agent
