// SPDX-License-Identifier: Apache-2.0
// The process environment, which only src/cli reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world/rank_env.h"

namespace trireme::cli {

comm::Environment process_environment();

// Returns "NAME=value" for every variable of this process, with `changes` applied.
std::vector<std::string> environment_words(const comm::Environment& changes);

// Returns `asked`, or if that is 0 the value of OMP_NUM_THREADS, or 0 if that is not set either.
int64_t threads_asked(int64_t asked);

}  // namespace trireme::cli
