// SPDX-License-Identifier: Apache-2.0
#include "obs/terminal/number_text.h"

#include <fmt/core.h>

#include <array>
#include <cmath>

namespace trireme::obs {

namespace {

// Inserts commas between the digits before the point.
std::string with_commas(std::string text) {
  const size_t first = text.starts_with('-') ? 1 : 0;
  size_t at = std::min(text.find('.'), text.size());
  while (at > first + 3) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

}  // namespace

std::string grouped(int64_t value) { return with_commas(std::to_string(value)); }

std::string grouped(double value, int decimals) {
  const std::string text = fmt::format("{:.{}f}", value, decimals);
  return std::isfinite(value) ? with_commas(text) : text;
}

std::string count_text(int64_t value) {
  constexpr std::array<const char*, 4> units = {"K", "M", "B", "T"};
  if (std::abs(value) < 100'000) return grouped(value);
  double scaled = static_cast<double>(value) / 1000;
  size_t unit = 0;
  for (; std::abs(scaled) >= 999.5 && unit + 1 < units.size(); ++unit) scaled /= 1000;
  const int decimals = std::abs(scaled) < 9.995 ? 2 : std::abs(scaled) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", scaled, decimals, units[unit]);
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> units = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  if (std::abs(value) < 1024) return fmt::format("{} B", bytes);
  size_t unit = 0;
  value /= 1024;
  // A value that two decimals would show as 1024.00 belongs to the next unit.
  for (; std::abs(value) >= 1023.995 && unit + 1 < units.size(); ++unit) value /= 1024;
  return fmt::format("{:.2f} {}", value, units[unit]);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e15) return "?";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60,
                rest = whole % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}:{:02}", days, hours, minutes, rest);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

}  // namespace trireme::obs
