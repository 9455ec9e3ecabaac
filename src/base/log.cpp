// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "base/text/printable.h"

namespace trireme::base {
namespace {

// The logger is global state, because a process has one stderr.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>(
        "trireme", std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>());
    made->set_pattern("%v");
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void log(LogLevel level, std::string_view message) {
  const char* prefix = level == LogLevel::warning ? "warning: "
                       : level == LogLevel::error ? "error: "
                                                  : "";
  logger().log(level_of(level), "{}{}", prefix, printable_lines(message));
}

void set_log_level(LogLevel lowest) { logger().set_level(level_of(lowest)); }

}  // namespace trireme::base
