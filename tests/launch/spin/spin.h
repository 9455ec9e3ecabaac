// SPDX-License-Identifier: Apache-2.0
// Steps of a tiny model, in one of which one rank's device spins for ever, at any point of the
// step, while the host queues further steps.
#pragma once

#include <cstdint>
#include <string>

#include "tests/ranks/ranks_rig.h"

namespace trireme::tests {

struct SpinOptions {
  int rank = -1;      // that spins; -1: none
  int64_t step = 0;   // not before this step
  int64_t point = 0;  // before the call (communication, copy, wait) of this number, modulo those of
                      // a step

  // "RANK@STEP:POINT". Throws std::runtime_error.
  static SpinOptions from(const std::string& text);
};

// Trains until the run is aborted, or the process is killed. The rank that spins prints, when its
// device begins to,
//   "rank R spins since T at point P of N; steps take M s, 99 % of them at most L s"
// with T in seconds since 1970. It does so after 40 steps and 3 s, so that the usual time of a step
// is known.
[[noreturn]] void train_until_spin(const SpinOptions&, RankRig& rig);

}  // namespace trireme::tests
