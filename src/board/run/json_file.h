// SPDX-License-Identifier: Apache-2.0
// Reads JSON that another program wrote and that may be damaged or hostile: named pipes, huge files
// and deep nesting are refused.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/text/json.h"

namespace trireme::board {

constexpr size_t max_json_file_bytes = size_t{256} << 20;

// Returns none for a text that is no JSON or nests too deep.
std::optional<base::Json> parse_json(std::string_view text);

// Returns the content of a JSON file, or why it cannot be used: "is missing", "is no JSON", ...
base::Result<base::Json> read_json(const std::filesystem::path& path);

// Returns whether the path does not exist or is a regular file, which can be read without waiting.
bool is_plain_or_absent(const std::filesystem::path& path);

}  // namespace trireme::board
