// SPDX-License-Identifier: Apache-2.0
#include "text/bpe/byte_alphabet.h"

#include "text/unicode/utf8.h"

namespace trireme::text {

const std::array<char32_t, 256>& byte_alphabet() {
  static const std::array<char32_t, 256> alphabet = [] {
    std::array<char32_t, 256> table{};
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool is_printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      table[byte] = is_printable ? static_cast<char32_t>(byte) : next++;
    }
    return table;
  }();
  return alphabet;
}

int byte_of_char(char32_t c) {
  static const std::array<int, 0x144> bytes = [] {
    std::array<int, 0x144> table{};
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      table[byte_alphabet()[static_cast<size_t>(byte)]] = byte;
    }
    return table;
  }();
  return c < bytes.size() ? bytes[c] : -1;
}

std::string in_byte_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    append_utf8(text, byte_alphabet()[static_cast<unsigned char>(byte)]);
  }
  return text;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const CodePoint point = code_point_at(token.data() + i);
    const int byte = byte_of_char(point.value);
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    i += point.bytes;
  }
  return bytes;
}

}  // namespace trireme::text
