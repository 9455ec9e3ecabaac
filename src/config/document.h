// SPDX-License-Identifier: Apache-2.0
// A configuration file as a flat list of entries, each with its origin: the same for TOML, JSON and
// overrides on the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"

namespace trireme::config {

// A value of a type that no key has.
struct Foreign {
  std::string what;                // "an array", "a date", ...
  std::vector<std::string> texts;  // of an array of strings
};
using Value =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, NamedNumbers, Foreign>;

struct Entry {
  // Empty: top level. "training.dataset[1]": the second table of the array [[training.dataset]].
  std::string section;
  std::string key;
  Value value;
  std::string where;              // "file:line", "file" or "override ..."
  bool is_section_start = false;  // marks the section itself; key and value are unused
};

// Reads the whole file. Throws ConfigError if it does not exist, because another start would not
// find it either, and IoError if it is not a file, unreadable or above 16 MiB.
std::string read_text(const std::filesystem::path&);

// Resolves a path in a configuration: relative to the current folder or, if it does not exist
// there, to the folder of the configuration's file.
std::filesystem::path found_from(const std::filesystem::path& name,
                                 const std::filesystem::path& folder);

// Returns the names of the .toml files in the folders, without the suffix, sorted and unique. A
// missing folder counts as empty.
std::vector<std::string> toml_names(const std::vector<std::filesystem::path>& folders);

// Returns true if the text can only be JSON: TOML never begins with a brace.
bool looks_like_json(std::string_view text);

// Throws ConfigError that names `file` for bad syntax, a duplicate key in one object, more than
// 10000 keys in one object, and nesting deeper than 32.
base::Json parse_json(const std::string& text, const std::string& file);

// Return entries in the order of the file. REQUIRES for JSON: an object.
std::vector<Entry> entries_of_json(const base::Json&, const std::string& file);
// Throws ConfigError with file and line on bad syntax, and if there are more than 10000 dots.
// Tables inside a section are values, except those that `is_opened` returns true for: they are
// sections, such as "model.dims".
using IsOpened = std::function<bool(std::string_view path)>;
std::vector<Entry> entries_of_toml(const std::string& text, const std::string& file,
                                   const IsOpened& is_opened = {});

}  // namespace trireme::config
