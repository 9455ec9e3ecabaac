// SPDX-License-Identifier: Apache-2.0
// A configuration as a flat list of keys and texts, for lists and comparisons of runs.
#pragma once

#include <map>
#include <string>

#include "base/text/json_fwd.h"

namespace trireme::board {

// Returns "section.key" -> text for all values of run.json that a table can show: without those of
// the program, and without texts that are longer than a line. `config`: masked (secrets.h), or
// null.
std::map<std::string, std::string> flat_config(const base::Json& config);

}  // namespace trireme::board
