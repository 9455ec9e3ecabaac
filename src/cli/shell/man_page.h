// SPDX-License-Identifier: Apache-2.0
// The manual page of the program, in the format of man(7), generated from the descriptions of the
// verbs.
#pragma once

#include <string>

#include "cli/shell/args.h"
#include "cli/shell/build_info.h"

namespace trireme::cli {

std::string man_page(const CommandSet& commands, const BuildInfo& program);

}  // namespace trireme::cli
