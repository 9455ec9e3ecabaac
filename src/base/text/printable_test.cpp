// SPDX-License-Identifier: Apache-2.0
#include "base/text/printable.h"

#include <gtest/gtest.h>

namespace trireme::base {
namespace {

TEST(PrintableTest, text_stays_as_it_is) {
  for (const char* text : {"", "kjv, step 40 of 40", "é ß 漢字 😀 \\ \"", "C:\\n"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_lines(text), text);
  }
}

TEST(PrintableTest, codes_of_terminals_and_line_breaks_are_written_out) {
  EXPECT_EQ(printable("\033[2J\033]0;title\a"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(printable("kjv\nerror: forged\r\t\x7f"), "kjv\\nerror: forged\\r\\t\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI as one character
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "gpj.exe"),
            "\\u202egpj.exe");  // right-to-left override
  EXPECT_EQ(printable("a\xe2\x80\xa8"
                      "b"),
            "a\\u2028b");
}

TEST(PrintableTest, bytes_that_are_no_text_are_written_out) {
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");                                    // CSI of 8-bit terminals
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
  EXPECT_EQ(printable("\xe6\xbc"), "\\xe6\\xbc");  // cut off
}

TEST(PrintableTest, lines_of_messages_are_kept) {
  EXPECT_EQ(printable_lines("one\n\ttwo\033[2J\r"), "one\n\ttwo\\x1b[2J\\r");
}

}  // namespace
}  // namespace trireme::base
