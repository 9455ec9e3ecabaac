// SPDX-License-Identifier: Apache-2.0
// Reads the points of the runs of a board, with progress if they are large.
#pragma once

#include <string>

#include "board/board.h"

namespace trireme::cli {

// `label`: the verb.
void read_runs(board::Board& board, const std::string& label);

}  // namespace trireme::cli
