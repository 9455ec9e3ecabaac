// SPDX-License-Identifier: Apache-2.0
#include "config/numbers/scaled_number.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

namespace trireme::config {
namespace {

template <typename Number>
std::optional<Number> whole_text(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns the power of ten of a suffix, or 0 for any other letter.
int power_of(char suffix) {
  switch (suffix) {
    case 'k':
    case 'K':
      return 3;
    case 'm':
    case 'M':
      return 6;
    case 'b':
    case 'B':
    case 'g':
    case 'G':
      return 9;
    case 't':
    case 'T':
      return 12;
    default:
      return 0;
  }
}

// Removes the suffix and returns its power of ten; 0: there is none, or no digit before it.
int take_suffix(std::string_view& text) {
  if (text.size() < 2) return 0;
  const int power = power_of(text.back());
  const char before = text[text.size() - 2];
  if (power == 0 || !((before >= '0' && before <= '9') || before == '.')) return 0;
  text.remove_suffix(1);
  return power;
}

}  // namespace

std::optional<int64_t> scaled_integer(std::string_view text) {
  const int power = take_suffix(text);
  if (power == 0) return whole_text<int64_t>(text);
  // Moves the point by digits, so that nothing is rounded.
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  std::string_view fraction = text.substr(std::min(point + 1, text.size()));
  while (fraction.ends_with('0')) fraction.remove_suffix(1);
  if (std::ranges::any_of(fraction, [](char c) { return c < '0' || c > '9'; }) ||
      fraction.size() > static_cast<size_t>(power)) {
    return std::nullopt;
  }
  digits += fraction;
  digits.append(static_cast<size_t>(power) - fraction.size(), '0');
  return whole_text<int64_t>(digits);
}

std::optional<double> scaled_number(std::string_view text) {
  const int power = take_suffix(text);
  if (power == 0) return whole_text<double>(text);
  if (text.find_first_of("eE") != std::string_view::npos) return std::nullopt;
  return whole_text<double>(std::string(text) + "e" + std::to_string(power));
}

}  // namespace trireme::config
