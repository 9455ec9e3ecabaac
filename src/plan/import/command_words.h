// SPDX-License-Identifier: Apache-2.0
// Extracts the flags of a command or shell script from its text. It follows the shell's rules for
// words, quotes and simple variables, and runs nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

struct Flag {
  std::string name;  // "--num-layers"; underscores, which torchrun accepts, become dashes
  std::vector<std::string> values;
  bool has_equals = false;  // written as --flag=value
};

// Returns the flags in the order of the text. Line ends, with or without a backslash, are spaces;
// quotes group a word; `#` begins a comment. NAME=value, $NAME, ${NAME} and ${NAME:-value} are
// expanded. Flags inside NAME=(...) or NAME="..." count where they are written, so that ${NAME[@]}
// adds nothing. Expansions that need a shell ($1, $(...)) stay as they are written. Words that
// belong to no flag are skipped. Throws ConfigError on an unclosed quote.
std::vector<Flag> flags_of(std::string_view text);

}  // namespace trireme::plan
