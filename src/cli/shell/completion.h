// SPDX-License-Identifier: Apache-2.0
// Scripts that complete the command line in a shell: verbs, options, their choices, the keys of a
// configuration, and files. They depend on the descriptions of the verbs and on nothing else.
#pragma once

#include <string>

#include "cli/shell/args.h"

namespace trireme::cli {

std::string bash_completion(const CommandSet& commands);
std::string zsh_completion(const CommandSet& commands);

}  // namespace trireme::cli
