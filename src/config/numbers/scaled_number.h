// SPDX-License-Identifier: Apache-2.0
// Numbers of a command line with a decimal suffix: 4k, 4M, 100B (or 100G), 1.5T, in any case of
// letters. A suffix stands for 10^3, 10^6, 10^9 or 10^12; there are no binary ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme::config {

// Text that completes "'abc' is not a number".
inline constexpr std::string_view scaled_number_hint =
    "write digits, with k, M, B or T for 10^3, 10^6, 10^9 or 10^12 if you like: 4096, 4M, 1.5T";

// Return the number of a text with or without a suffix, and none for any other text. An integer
// with a suffix must be whole ("1.5k" is 1500) and fit its type.
std::optional<int64_t> scaled_integer(std::string_view text);
std::optional<double> scaled_number(std::string_view text);

}  // namespace trireme::config
