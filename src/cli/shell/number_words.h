// SPDX-License-Identifier: Apache-2.0
// Parses words of a command line as decimal numbers. The whole word must be a number.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace trireme::cli {

template <typename T>
std::optional<T> whole_number_from(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

inline std::optional<int64_t> integer_from(std::string_view text) {
  return whole_number_from<int64_t>(text);
}
inline std::optional<double> number_from(std::string_view text) {
  return whole_number_from<double>(text);
}

}  // namespace trireme::cli
