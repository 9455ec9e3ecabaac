// SPDX-License-Identifier: Apache-2.0
// What torchrun prints of a failed rank: it reads a file for each rank, error.json, and calls the
// failure with the least time stamp in it the root cause.
#pragma once

#include <string>

#include "comm/world/rank_env.h"

namespace trireme::cli {

// Writes why this rank failed to info.error_file; does nothing where that is empty. A rank that was
// killed writes nothing, and torchrun would blame the first one that has: where `message` is a
// verdict about another rank of this host, that one's file is written too, with an earlier time.
void write_torchrun_error(const comm::RankInfo& info, const std::string& message);

}  // namespace trireme::cli
