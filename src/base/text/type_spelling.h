// SPDX-License-Identifier: Apache-2.0
// Names of element types as other programs write them: float32, bfloat16, uint16, torch.float32.
#pragma once

#include <optional>
#include <string_view>

namespace trireme::base {

// Returns the short name ("f32", "bf16", "f16", "u16", ...) of the type that `word` names in any
// common spelling, in upper or lower case; none if it is not a type.
std::optional<std::string_view> short_type_name(std::string_view word);

}  // namespace trireme::base
