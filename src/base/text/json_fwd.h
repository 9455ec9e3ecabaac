// SPDX-License-Identifier: Apache-2.0
// Declares JSON values for headers that only name them: json.h takes two seconds to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace trireme::base {

using Json = nlohmann::ordered_json;  // keys in the order they were written

}  // namespace trireme::base
