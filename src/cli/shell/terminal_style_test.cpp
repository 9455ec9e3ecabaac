// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/terminal_style.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(TerminalStyle, escape_codes_go_to_terminals_that_want_them) {
  const comm::Environment plain{{"TERM", "xterm"}};
  EXPECT_TRUE(terminal_style(plain, true).is_live);
  EXPECT_TRUE(terminal_style(plain, true).has_escapes);
  EXPECT_FALSE(terminal_style(plain, false).is_live);
  EXPECT_FALSE(terminal_style(plain, false).has_escapes);
  EXPECT_FALSE(terminal_style({{"TERM", "dumb"}}, true).is_live);
  EXPECT_FALSE(terminal_style({{"TERM", "dumb"}}, true).has_escapes);
  EXPECT_TRUE(terminal_style({{"TERM", "xterm"}, {"NO_COLOR", "1"}}, true).is_live);
  EXPECT_FALSE(terminal_style({{"TERM", "xterm"}, {"NO_COLOR", "1"}}, true).has_escapes);
  EXPECT_TRUE(terminal_style({{"TERM", "xterm"}, {"NO_COLOR", ""}}, true).has_escapes);
}

TEST(TerminalStyle, the_first_locale_variable_that_is_set_decides) {
  EXPECT_FALSE(is_utf8_locale({}));
  EXPECT_TRUE(is_utf8_locale({{"LANG", "en_US.UTF-8"}}));
  EXPECT_TRUE(is_utf8_locale({{"LANG", "C.utf8"}, {"LC_ALL", ""}}));
  EXPECT_FALSE(is_utf8_locale({{"LANG", "en_US.UTF-8"}, {"LC_ALL", "C"}}));
  EXPECT_FALSE(is_utf8_locale({{"LANG", "en_US.UTF-8"}, {"LC_CTYPE", "de_DE.ISO-8859-1"}}));
  EXPECT_TRUE(is_utf8_locale({{"LANG", "C"}, {"LC_ALL", "C.UTF-8"}}));
}

}  // namespace
}  // namespace trireme::cli
