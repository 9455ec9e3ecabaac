// SPDX-License-Identifier: Apache-2.0
// Text of files that others wrote, on a terminal. A name or a message must not be able to move the
// cursor, set the title of a window, or look like a line of the program.
#pragma once

#include <string>
#include <string_view>

namespace trireme::base {

// Returns the text on one line: control characters, line breaks, characters that reverse the
// direction of text, and bytes that are no UTF-8 are written as "\n", "\x1b" or "\u202e".
std::string printable(std::string_view text);

// Returns the text with its line breaks and tabs, and all else as printable() writes it.
std::string printable_lines(std::string_view text);

}  // namespace trireme::base
