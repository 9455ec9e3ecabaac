// SPDX-License-Identifier: Apache-2.0
// Token ids as stored in a file: contiguous little-endian integers of one type, at any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme::data {

enum class TokenType : uint8_t { u8, i8, u16, i16, i32, u32, i64 };

int64_t size_of(TokenType);
std::string_view name_of(TokenType);  // "u16"
// Throws ConfigError that lists the names.
TokenType token_type_from_name(std::string_view name);

// A view; the caller keeps the bytes alive. Any thread may read.
struct TokenArray {
  std::span<const std::byte> bytes;
  TokenType type = TokenType::u16;
  std::string name;  // the file, for messages

  int64_t size() const { return static_cast<int64_t>(bytes.size()) / size_of(type); }
  // Reads tokens [begin, begin + out.size()). Throws IoError if one is negative or above 2^31 - 1,
  // which no vocabulary has. REQUIRES: the range is in the array.
  void read(int64_t begin, std::span<int32_t> out) const;
};

}  // namespace trireme::data
