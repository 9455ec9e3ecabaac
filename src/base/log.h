// SPDX-License-Identifier: Apache-2.0
// Human-readable messages on stderr; stdout is for results only.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace trireme::base {

enum class LogLevel : unsigned char { info, warning, error };

// Thread-safe; one message per call. Warnings and errors have a prefix. Control characters are
// written out, since messages quote names and texts of files.
void log(LogLevel, std::string_view message);
// Drops messages below `lowest` from now on.
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
