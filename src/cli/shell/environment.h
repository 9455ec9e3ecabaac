// SPDX-License-Identifier: Apache-2.0
// The process environment, which only src/cli reads, and the limit of file descriptors.
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

// Raises the limit of open descriptors to the hard limit, at most to 2^20. Ranks that this process
// starts inherit it.
void raise_descriptor_limit();

// Throws ConfigError, with the numbers, unless this process may open `more` descriptors in addition
// to those that are open; `purpose` is the subject of the message.
void expect_descriptors(int64_t more, const std::string& purpose);

}  // namespace trireme::cli
