// SPDX-License-Identifier: Apache-2.0
// That there are JSON values, for headers that only name them: json.h takes a compiler two seconds.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace trireme::base {

using Json = nlohmann::ordered_json;  // keys in the order they were written

}  // namespace trireme::base
