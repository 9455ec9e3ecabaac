// SPDX-License-Identifier: Apache-2.0
// JSON values, with keys in the order they were written.
#pragma once

#include <nlohmann/json.hpp>

namespace trireme::base {

using Json = nlohmann::ordered_json;

}  // namespace trireme::base
