// SPDX-License-Identifier: Apache-2.0
// Stacks as files: TOML, one training program per file (stacks/*.toml), in which every number names
// its source. stacks/README.md describes the keys.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "spec/stack.h"

namespace trireme::config {

// Reads a stack by path (it has a slash or ends in .toml) or by the name of a file `<name>.toml` in
// the first folder that has it. Throws ConfigError that lists every problem with file and line, or,
// for an unknown name, the known names; IoError for a missing file.
spec::Stack stack_from_file(const std::string& path_or_name,
                            const std::vector<std::filesystem::path>& folders);
// The same for a text without a file; `where` names it in messages.
spec::Stack stack_from_text(const std::string& text, const std::string& where);

// Returns the names that stack_from_file finds in the folders, sorted.
std::vector<std::string> stack_names(const std::vector<std::filesystem::path>& folders);

// Returns the table of keys in stacks/README.md.
std::string stack_keys_page();

}  // namespace trireme::config
