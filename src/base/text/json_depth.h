// SPDX-License-Identifier: Apache-2.0
// How deep a JSON text nests. Copying or printing a value uses the stack once per level, so readers
// of files from elsewhere refuse what nests too deep.
#pragma once

#include <string_view>

namespace trireme::base {

// Values of the program's files nest far less.
constexpr int max_json_depth = 64;

// Returns the number of arrays and objects that are open at once, at most. The text need not be
// JSON.
int json_depth(std::string_view text);

}  // namespace trireme::base
