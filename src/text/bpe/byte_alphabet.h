// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level tokenizers: one printable character for each of the 256 bytes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::text {

// The character of each byte: itself if it is printable Latin-1, otherwise U+0100 and following.
const std::array<char32_t, 256>& byte_alphabet();
// The byte that a character stands for, or -1.
int byte_of_char(char32_t c);
// The bytes written in the alphabet.
std::string in_byte_alphabet(std::string_view bytes);
// The reverse; nullopt if a character is not of the alphabet. REQUIRES: valid UTF-8.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace trireme::text
