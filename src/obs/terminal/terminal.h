// SPDX-License-Identifier: Apache-2.0
// What is known about the terminal behind a file descriptor.
#pragma once

#include <string_view>

namespace trireme::obs {

bool is_terminal(int descriptor);

// Columns; `fallback` where it is no terminal or does not say.
int terminal_width(int descriptor, int fallback = 80);

// Writes what it can and keeps silent about what it cannot: nobody reads a log of a closed console.
void write_quietly(int descriptor, std::string_view text);

// Columns that UTF-8 text takes, if every character takes one.
int columns_of(std::string_view text);
// The part of the text that fits.
std::string_view cut_to_columns(std::string_view text, int columns);

}  // namespace trireme::obs
