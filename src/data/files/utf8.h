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

struct TextPlace {
  std::string_view name;  // the file
  int64_t offset = 0;     // of bytes[0] in it
};
// Throws IoError with the byte's value and offset in the file.
void check_utf8(std::span<const std::byte> bytes, const TextPlace&);

}  // namespace trireme::data
