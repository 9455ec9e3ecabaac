// SPDX-License-Identifier: Apache-2.0
// Checks whether text is UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trireme::data {

// Returns the offset of the first byte that is not part of a well-formed sequence: no overlong
// forms, no surrogates, nothing above U+10FFFF, nothing cut off at the end.
std::optional<size_t> first_invalid_utf8(std::span<const std::byte> bytes);

// U+FEFF in UTF-8: programs of Windows write it at the beginning of files. It is no part of a text.
inline constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Returns how to convert a text that begins with the byte-order mark of UTF-16, otherwise "".
std::string_view utf16_hint(std::span<const std::byte> bytes);

// `bytes` is the whole file `name`, each byte of which becomes a token. Throws IoError with the
// value and offset of the first byte that is not UTF-8, and what to do.
void check_utf8_file(std::span<const std::byte> bytes, std::string_view name);

}  // namespace trireme::data
