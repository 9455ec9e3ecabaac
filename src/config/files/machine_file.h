// SPDX-License-Identifier: Apache-2.0
// Machines as files: TOML, one machine a file (machines/*.toml), in which every number names its
// source. What is not known is refused; nothing is guessed. machines/README.md describes the keys.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "spec/machine.h"

namespace trireme::config {

// A machine by a path (it has a slash or ends in .toml) or by the name of a file `<name>.toml` in
// one of the folders, the first that has it. Throws ConfigError that lists every problem with file
// and line, or, for a name that no file has, the names there are and how to describe a machine;
// IoError if there is no such file.
spec::Machine machine_from_file(const std::string& path_or_name,
                                const std::vector<std::filesystem::path>& folders);
// The same from a text that is in no file; `where` names it in messages.
spec::Machine machine_from_text(const std::string& text, const std::string& where);

// Names that machine_from_file finds in the folders, sorted.
std::vector<std::string> machine_names(const std::vector<std::filesystem::path>& folders);

// The file of a machine, with numbers to so many digits: ten give back what people write, whatever
// its unit. `comment`: lines of its head, each without #.
// REQUIRES: `source` is not empty, or every number has a source of its own.
std::string machine_text(const spec::Machine&, std::string_view comment = "", int digits = 10);

// The keys of a machine file by section, with the numbers of the file, and "sources".
base::Json machine_json(const spec::Machine&);

// The table of keys in machines/README.md.
std::string machine_keys_page();

}  // namespace trireme::config
