// SPDX-License-Identifier: Apache-2.0
// Formats the figures of `bench gpu` as a machine file and as human-readable tables. Figures are an
// object of scalars, objects of scalars (sections) and arrays of objects of scalars (lists).
#pragma once

#include <filesystem>
#include <string>

#include "base/text/json_fwd.h"

namespace trireme::cli {

// Returns TOML: the scalars, then [section] for every section and [[list]] for every entry of a
// list.
std::string machine_file_text(const base::Json& figures);
// Returns one table per section or list, without columns whose values are all equal.
std::string figures_text(const base::Json& figures);

// Throws ConfigError if `path` exists and may not be replaced, or if its folder does not exist.
void check_machine_file(const std::filesystem::path& path, bool may_replace);
// Writes the file atomically. Throws IoError.
void write_machine_file(const std::filesystem::path& path, const std::string& text);

}  // namespace trireme::cli
