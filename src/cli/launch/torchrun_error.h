// SPDX-License-Identifier: Apache-2.0
// The error files of torchrun: it reads error.json of each rank and reports the failure with the
// earliest time stamp as the root cause.
#pragma once

#include <optional>
#include <string>

#include "comm/world/rank_env.h"

namespace trireme::cli {

// Writes why this rank failed to info.error_file; does nothing if that is empty. A rank that was
// killed writes no file, and torchrun would blame the first rank that did: so if `message` is a
// verdict about another rank of this host, `culprit`, the file of that rank is written, too, with
// an earlier time.
void write_torchrun_error(const comm::RankInfo& info, const std::string& message,
                          std::optional<int> culprit = std::nullopt);

}  // namespace trireme::cli
