// SPDX-License-Identifier: Apache-2.0
// What files of JSON lines share: the incomplete last line that a killed process left, and values
// that are written without building a JSON object.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::obs {

// Removes an incomplete last line, if there is one. Returns the path. Throws IoError.
const std::filesystem::path& cut_partial_line(const std::filesystem::path& path);

// Appends the shortest decimal that gives the same double, with a point; a value that is not finite
// as one of the strings "NaN", "Infinity" and "-Infinity".
void add_json_number(std::string& text, double value);
// Appends the string in quotes, with escapes.
void add_json_string(std::string& text, std::string_view value);

}  // namespace trireme::obs
