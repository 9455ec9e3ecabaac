// SPDX-License-Identifier: Apache-2.0
// Writes Python's pickle format, for readers that load nothing else. A JSON value becomes the value
// that Python's json module would return: dict, list, str, int, float, bool, None.
#pragma once

#include <string>

#include "base/text/json_fwd.h"

namespace trireme::base {

// Returns the bytes of `value` in protocol 2, which every Python 3 reads.
// REQUIRES: integers fit int64_t; texts are shorter than 4 GiB.
std::string pickle(const Json& value);

}  // namespace trireme::base
