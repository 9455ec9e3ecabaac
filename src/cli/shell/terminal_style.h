// SPDX-License-Identifier: Apache-2.0
// What may be written to a terminal, by the conventions of its environment.
#pragma once

#include "comm/world/rank_env.h"

namespace trireme::cli {

struct TerminalStyle {
  bool is_live = false;      // one line may be drawn over itself: a terminal that is not TERM=dumb
  bool has_escapes = false;  // escape codes may be sent: live, and without NO_COLOR
};
TerminalStyle terminal_style(const comm::Environment& environment, bool is_terminal);

// Whether text is read as UTF-8: by the first of LC_ALL, LC_CTYPE and LANG that is set.
bool is_utf8_locale(const comm::Environment& environment);

}  // namespace trireme::cli
