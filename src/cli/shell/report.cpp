// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <new>

#include "agent/exit_codes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/json.h"

namespace trireme::cli {

int report(const std::string& message, bool wants_json, int code) {
  base::log(base::LogLevel::error, message);
  if (wants_json) {
    // A message may quote a file or an argument that is not UTF-8.
    const base::Json out{{"ok", false}, {"error", message}};
    fmt::print("{}\n", out.dump(-1, ' ', false, base::Json::error_handler_t::replace));
    std::fflush(stdout);
  }
  return code;
}

std::string message_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "out of memory on the host; use a smaller model, micro-batch or sequence length";
  }
  return error.what();
}

int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const base::ConfigError*>(&error) != nullptr) return agent::exit_bad_call;
  if (dynamic_cast<const base::Stopped*>(&error) != nullptr) return agent::exit_stopped;
  if (dynamic_cast<const base::Fenced*>(&error) != nullptr) return agent::exit_taken_over;
  if (dynamic_cast<const base::Diverged*>(&error) != nullptr) return agent::exit_diverged;
  return agent::exit_failed;
}

int report_error(const std::exception& error, bool wants_json) {
  return report(message_of(error), wants_json, exit_code_of(error));
}

}  // namespace trireme::cli
