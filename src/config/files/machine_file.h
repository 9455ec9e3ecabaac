// SPDX-License-Identifier: Apache-2.0
// Machines as files: TOML, one machine per file (machines/*.toml), in which every number names its
// source. Unknown keys and missing numbers are refused; nothing is guessed. machines/README.md
// describes the keys.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "spec/machine.h"

namespace trireme::config {

// Reads a machine by path (it has a slash or ends in .toml) or by the name of a file `<name>.toml`
// in the first folder that has it. Throws ConfigError that lists every problem with file and line,
// or, for an unknown name, the known names and how to describe a machine; IoError for a missing
// file.
spec::Machine machine_from_file(const std::string& path_or_name,
                                const std::vector<std::filesystem::path>& folders);
// The same for a text without a file; `where` names it in messages.
spec::Machine machine_from_text(const std::string& text, const std::string& where);

// Returns the names that machine_from_file finds in the folders, sorted.
std::vector<std::string> machine_names(const std::vector<std::filesystem::path>& folders);

// Returns the file of a machine, with numbers to `digits` digits: ten reproduce hand-written
// numbers in any unit. `comment`: lines of its head, each without #.
// REQUIRES: `source` is not empty, or every number has a source.
std::string machine_text(const spec::Machine&, std::string_view comment = "", int digits = 10);

// Returns the keys of a machine file by section, with the numbers of the file, and "sources".
base::Json machine_json(const spec::Machine&);

// Returns the table of keys in machines/README.md.
std::string machine_keys_page();

}  // namespace trireme::config
