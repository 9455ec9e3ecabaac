// SPDX-License-Identifier: Apache-2.0
// A count with its noun, for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::base {

// Returns "1 document", "0 documents", "2 documents". `several` is the plural if that is not `one`
// with an s.
std::string count_text(int64_t count, std::string_view one, std::string_view several = {});

}  // namespace trireme::base
