// SPDX-License-Identifier: Apache-2.0
// What `bench gpu` measured, as a machine file and as tables for people. Figures are an object of
// scalars, objects of scalars (sections) and arrays of objects of scalars (lists).
#pragma once

#include <filesystem>
#include <string>

#include "base/text/json_fwd.h"

namespace trireme::cli {

// TOML: the scalars, then [section] for every section and [[list]] for every entry of a list.
std::string machine_file_text(const base::Json& figures);
// One table a section or list; columns that never change are left out.
std::string figures_text(const base::Json& figures);

// Throws ConfigError if `path` exists and may not be replaced, or has no folder to stand in.
void check_machine_file(const std::filesystem::path& path, bool may_replace);
// All of the file or none of it. Throws IoError.
void write_machine_file(const std::filesystem::path& path, const std::string& text);

}  // namespace trireme::cli
