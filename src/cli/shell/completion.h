// SPDX-License-Identifier: Apache-2.0
// Completion scripts for shells: verbs, options, their choices, the keys of a configuration, and
// files. They are generated from the descriptions of the verbs only.
#pragma once

#include <string>

#include "cli/shell/args.h"

namespace trireme::cli {

std::string bash_completion(const CommandSet& commands);
std::string zsh_completion(const CommandSet& commands);

}  // namespace trireme::cli
