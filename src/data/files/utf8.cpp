// SPDX-License-Identifier: Apache-2.0
#include "data/files/utf8.h"

#include <fmt/core.h>

#include <cstring>

#include "base/error.h"

namespace trireme::data {
namespace {

// Returns the length of the well-formed sequence at the front, 0 if there is none (Unicode, table
// 3-7).
size_t sequence_length(std::span<const std::byte> bytes) {
  const auto at = [&](size_t i) {
    return i < bytes.size() ? static_cast<unsigned>(bytes[i]) : 0U;  // 0 continues nothing
  };
  const auto continues = [&](size_t i) { return (at(i) & 0xc0U) == 0x80U; };
  const unsigned lead = at(0), second = at(1);
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return continues(1) ? 2 : 0;
  if (lead < 0xf0) {
    const bool overlong = lead == 0xe0 && second < 0xa0, surrogate = lead == 0xed && second > 0x9f;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead > 0xf4) return 0;
  const bool overlong = lead == 0xf0 && second < 0x90, too_large = lead == 0xf4 && second > 0x8f;
  return continues(1) && continues(2) && continues(3) && !overlong && !too_large ? 4 : 0;
}

}  // namespace

std::optional<size_t> first_invalid_utf8(std::span<const std::byte> bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    // Eight bytes of ASCII at once: most text is.
    uint64_t word = 0;
    if (bytes.size() - at >= sizeof(word)) {
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      if ((word & 0x8080808080808080ULL) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const size_t length = sequence_length(bytes.subspan(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string_view utf16_hint(std::span<const std::byte> bytes) {
  if (bytes.size() < 2) return "";
  const auto first = static_cast<unsigned>(bytes[0]), second = static_cast<unsigned>(bytes[1]);
  const bool is_utf16 = (first == 0xff && second == 0xfe) || (first == 0xfe && second == 0xff);
  return is_utf16 ? "; the text begins as UTF-16 does: convert it with `iconv -f UTF-16 -t UTF-8`"
                  : "";
}

void check_utf8_file(std::span<const std::byte> bytes, std::string_view name) {
  const auto bad = first_invalid_utf8(bytes);
  if (!bad) return;
  const std::string_view hint = utf16_hint(bytes);
  throw base::IoError(fmt::format(
      "{}: not UTF-8: byte 0x{:02x} at offset {}{}", name, static_cast<unsigned>(bytes[*bad]), *bad,
      hint.empty() ? fmt::format("; convert the text (`iconv -f LATIN1 -t UTF-8`), or make tokens "
                                 "of all its bytes with `trireme data build {} --raw-bytes "
                                 "--output PREFIX` and give PREFIX",
                                 name)
                   : hint));
}

}  // namespace trireme::data
