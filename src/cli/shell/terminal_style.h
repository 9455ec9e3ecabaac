// SPDX-License-Identifier: Apache-2.0
// Which control codes and characters a terminal accepts, from its environment variables.
#pragma once

#include "comm/world/rank_env.h"

namespace trireme::cli {

struct TerminalStyle {
  bool is_live = false;      // a line may be redrawn in place: a terminal that is not TERM=dumb
  bool has_escapes = false;  // escape codes may be sent: live, and without NO_COLOR
};
TerminalStyle terminal_style(const comm::Environment& environment, bool is_terminal);

// Returns whether text is read as UTF-8, from the first of LC_ALL, LC_CTYPE and LANG that is set.
bool is_utf8_locale(const comm::Environment& environment);

}  // namespace trireme::cli
