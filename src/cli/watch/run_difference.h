// SPDX-License-Identifier: Apache-2.0
// trireme runs --diff: the keys in which the configurations of two runs differ.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/args.h"

namespace trireme::cli {

// Prints the differences as a table or as JSON, and returns the exit code. Throws ConfigError
// unless the folders are those of two runs.
int print_difference(const Args& args, const std::vector<std::string>& folders);

}  // namespace trireme::cli
