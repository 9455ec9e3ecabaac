// SPDX-License-Identifier: Apache-2.0
// Messages to people, on stderr: results go to stdout, and nothing else does.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace trireme::base {

enum class LogLevel : unsigned char { info, warning, error };

// Thread-safe; one line per call. Warnings and errors say so.
void log(LogLevel, std::string_view message);
// Messages below `lowest` are dropped from here on.
void set_log_level(LogLevel lowest);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trireme::base
