// SPDX-License-Identifier: Apache-2.0
#include "data/readers/json_text.h"

#include <bit>
#include <cstring>

namespace trireme::data {
namespace {

constexpr uint64_t every_byte(uint8_t value) { return 0x0101010101010101ULL * value; }

// Returns the highest bit of each byte that is zero; above the lowest such byte others may be set.
constexpr uint64_t zero_bytes(uint64_t word) {
  return (word - every_byte(1)) & ~word & every_byte(0x80);
}

}  // namespace

const char* string_special(const char* at, const char* end) {
  while (end - at >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    const uint64_t found = zero_bytes(word ^ every_byte('"')) |
                           zero_bytes(word ^ every_byte('\\')) |
                           ((word - every_byte(0x20)) & ~word & every_byte(0x80));
    if (found != 0) return at + std::countr_zero(found) / 8;
    at += 8;
  }
  while (at < end && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
  return at;
}

void append_utf8(std::string& out, uint32_t code) {
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0U | code >> 6U);
    add(0x80U | (code & 0x3fU));
  } else if (code < 0x10000) {
    add(0xe0U | code >> 12U);
    add(0x80U | (code >> 6U & 0x3fU));
    add(0x80U | (code & 0x3fU));
  } else {
    add(0xf0U | code >> 18U);
    add(0x80U | (code >> 12U & 0x3fU));
    add(0x80U | (code >> 6U & 0x3fU));
    add(0x80U | (code & 0x3fU));
  }
}

}  // namespace trireme::data
