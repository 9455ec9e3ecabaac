// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/terminal_style.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace trireme::cli {
namespace {

std::string variable(const comm::Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace

TerminalStyle terminal_style(const comm::Environment& environment, bool is_terminal) {
  const bool is_live = is_terminal && variable(environment, "TERM") != "dumb";
  return {.is_live = is_live, .has_escapes = is_live && variable(environment, "NO_COLOR").empty()};
}

bool is_utf8_locale(const comm::Environment& environment) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string locale = variable(environment, name);
    if (locale.empty()) continue;
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace trireme::cli
