// SPDX-License-Identifier: Apache-2.0
// JSON from elsewhere. Copying or printing a value uses the stack once per level, so values that
// nest too deep are refused before they are built.
#pragma once

#include <string_view>

#include "base/text/json_fwd.h"

namespace trireme::base {

// Values of the program's files nest far less.
constexpr int max_json_depth = 64;

// Returns the number of arrays and objects that are open at once, at most. The text need not be
// JSON.
int json_depth(std::string_view text);

// Returns a discarded value (is_discarded()) for a text that is no JSON or nests too deep.
Json parse_shallow_json(std::string_view text);

}  // namespace trireme::base
