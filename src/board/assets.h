// SPDX-License-Identifier: Apache-2.0
// The pages of the board, which are part of the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::board {

struct Asset {
  std::string_view name;  // "index.html", "app.js", "dygraph.js"
  std::string_view plain, gzip;
  std::string_view hash;  // SHA-256 of `plain`, in hexadecimal digits
};

// Empty in a build without dygraphs.
const std::vector<Asset>& embedded_assets();
// Throws ConfigError that names the missing package if there are none.
void expect_assets();

// Returns the media type for the end of a name; "application/octet-stream" if it is unknown.
std::string_view media_type_of(std::string_view name);

}  // namespace trireme::board
