// SPDX-License-Identifier: Apache-2.0
// The environment of this process as a table: only src/cli reads it.
#pragma once

#include <string>
#include <vector>

#include "comm/rank_env.h"

namespace trireme::cli {

comm::Environment process_environment();

// "NAME=value" for every variable, `changes` over those of this process.
std::vector<std::string> environment_words(const comm::Environment& changes);

}  // namespace trireme::cli
