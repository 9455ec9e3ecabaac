// SPDX-License-Identifier: Apache-2.0
// The flags in the text of a command or of a shell script, read as a shell would read them as far
// as that needs no shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

struct Flag {
  std::string name;  // "--num-layers": with dashes, also where torchrun takes underscores
  std::vector<std::string> values;
  bool has_equals = false;  // written as --flag=value
};

// In the order of the text. Line ends, with or without a backslash, are spaces; quotes hold a word
// together; `#` begins a comment. NAME=value, $NAME, ${NAME} and ${NAME:-value} are followed; flags
// inside NAME=(...) or NAME="..." stand where they are written, so that ${NAME[@]} adds nothing.
// What only a shell could know ($1, $(...)) stays as it is written. Words that belong to no flag
// are left out. Throws ConfigError on a quote that is not closed.
std::vector<Flag> flags_of(std::string_view text);

}  // namespace trireme::plan
