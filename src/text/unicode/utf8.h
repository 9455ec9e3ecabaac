// SPDX-License-Identifier: Apache-2.0
// UTF-8: code points of text that is known to be valid, and the replacement of invalid bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::text {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

struct CodePoint {
  char32_t value;
  uint32_t bytes;  // 1 to 4
};

// REQUIRES: `at` points to the first byte of a code point of valid UTF-8.
inline CodePoint code_point_at(const char* at) {
  const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(at[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The code point that ends before `end`. REQUIRES: valid UTF-8 before `end`, not empty.
inline CodePoint code_point_before(const char* end) {
  const char* at = end - 1;
  while (is_continuation(*at)) --at;
  return code_point_at(at);
}

// REQUIRES: a code point, no surrogate.
void append_utf8(std::string& text, char32_t code_point);

// The number of ASCII bytes that `text` begins with.
size_t ascii_prefix(std::string_view text);
bool is_valid_utf8(std::string_view text);
// Every maximal invalid sequence replaced by U+FFFD, as String::from_utf8_lossy of Rust does.
std::string with_replacements(std::string_view bytes);

// The same for bytes that arrive in parts: text goes out when its code point is complete.
class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& text);
  // Replaces a sequence that is still incomplete, and starts over.
  void finish(std::string& text);
  bool is_complete() const { return pending_size_ == 0; }

 private:
  void push_byte(unsigned char byte, std::string& text);

  std::array<char, 4> pending_{};
  int pending_size_ = 0;
  int needed_ = 0;            // bytes that are still missing
  unsigned char low_ = 0x80;  // what the next continuation byte may be
  unsigned char high_ = 0xBF;
};

}  // namespace trireme::text
