// SPDX-License-Identifier: Apache-2.0
// Parses words of a command line as decimal numbers. The whole word must be a number; it may end in
// a suffix (config/numbers/scaled_number.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "config/numbers/scaled_number.h"

namespace trireme::cli {

inline std::optional<int64_t> integer_from(std::string_view text) {
  return config::scaled_integer(text);
}
inline std::optional<double> number_from(std::string_view text) {
  return config::scaled_number(text);
}

}  // namespace trireme::cli
