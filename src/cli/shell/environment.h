// SPDX-License-Identifier: Apache-2.0
// What the system gives this process: the environment as a table, which only src/cli reads, and how
// many descriptors it may have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world/rank_env.h"

namespace trireme::cli {

comm::Environment process_environment();

// "NAME=value" for every variable, `changes` over those of this process.
std::vector<std::string> environment_words(const comm::Environment& changes);

// `asked`, or where that is 0 OMP_NUM_THREADS; 0: neither says a number.
int64_t threads_asked(int64_t asked);

// Raises the limit of open descriptors to the hard limit, or to 2^20 where that is above. Ranks
// that this process starts have the raised limit, too.
void raise_descriptor_limit();

// Throws ConfigError, with the numbers, unless this process may open `more` descriptors in addition
// to those that it has; `purpose` says what for.
void expect_descriptors(int64_t more, const std::string& purpose);

}  // namespace trireme::cli
