// SPDX-License-Identifier: Apache-2.0
// Properties of the terminal behind a file descriptor.
#pragma once

#include <string_view>

namespace trireme::obs {

bool is_terminal(int descriptor);

// Returns the columns; `fallback` if it is not a terminal or does not report them.
int terminal_width(int descriptor, int fallback = 80);

// Writes as much as possible and ignores errors: a closed console has no reader.
void write_quietly(int descriptor, std::string_view text);

// Returns the columns of UTF-8 text, assuming one per character.
int columns_of(std::string_view text);
// Returns the part of the text that fits.
std::string_view cut_to_columns(std::string_view text, int columns);

}  // namespace trireme::obs
