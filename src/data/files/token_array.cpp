// SPDX-License-Identifier: Apache-2.0
#include "data/files/token_array.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text/type_spelling.h"

namespace trireme::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

struct TypeRow {
  TokenType type;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<TypeRow, 7> types = {{{TokenType::u8, "u8", 1},
                                           {TokenType::i8, "i8", 1},
                                           {TokenType::u16, "u16", 2},
                                           {TokenType::i16, "i16", 2},
                                           {TokenType::i32, "i32", 4},
                                           {TokenType::u32, "u32", 4},
                                           {TokenType::i64, "i64", 8}}};

template <typename Stored>
Stored load(const std::byte* from, size_t index) {
  Stored value;
  std::memcpy(&value, from + index * sizeof(Stored), sizeof(Stored));
  return value;
}

// Returns true if every token fits; those that do not become negative.
template <typename Stored>
bool convert(const std::byte* from, std::span<int32_t> out) {
  int32_t signs = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto value = load<Stored>(from, i);
    if constexpr (sizeof(Stored) > sizeof(int32_t)) {
      out[i] = std::in_range<int32_t>(value) ? static_cast<int32_t>(value) : -1;
    } else {
      out[i] = static_cast<int32_t>(value);
    }
    signs |= out[i];
  }
  return signs >= 0;
}

int64_t stored_value(const std::byte* from, TokenType type, size_t index) {
  switch (type) {
    case TokenType::u8:
      return load<uint8_t>(from, index);
    case TokenType::i8:
      return load<int8_t>(from, index);
    case TokenType::u16:
      return load<uint16_t>(from, index);
    case TokenType::i16:
      return load<int16_t>(from, index);
    case TokenType::i32:
      return load<int32_t>(from, index);
    case TokenType::u32:
      return load<uint32_t>(from, index);
    case TokenType::i64:
      return load<int64_t>(from, index);
  }
  return 0;
}

bool convert(const std::byte* from, TokenType type, std::span<int32_t> out) {
  switch (type) {
    case TokenType::u8:
      return convert<uint8_t>(from, out);
    case TokenType::i8:
      return convert<int8_t>(from, out);
    case TokenType::u16:
      return convert<uint16_t>(from, out);
    case TokenType::i16:
      return convert<int16_t>(from, out);
    case TokenType::i32:
      return convert<int32_t>(from, out);
    case TokenType::u32:
      return convert<uint32_t>(from, out);
    case TokenType::i64:
      return convert<int64_t>(from, out);
  }
  return false;
}

}  // namespace

int64_t size_of(TokenType type) { return types[static_cast<size_t>(type)].bytes; }

std::string_view name_of(TokenType type) { return types[static_cast<size_t>(type)].name; }

TokenType token_type_from_name(std::string_view word) {
  const std::string_view name = base::short_type_name(word).value_or(word);
  for (const TypeRow& row : types) {
    if (row.name == name) return row.type;
  }
  throw base::ConfigError(
      fmt::format("'{}' is not a token type; allowed: u8, i8, u16, i16, i32, u32, i64", word));
}

void TokenArray::read(int64_t begin, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  TRIREME_CHECK(begin >= 0 && count <= size() && begin <= size() - count,
                "{}: {} tokens at {} of {}", name, count, begin, size());
  if (count == 0) return;
  const std::byte* from = bytes.data() + begin * size_of(type);
  if (convert(from, type, out)) return;
  size_t bad = 0;
  while (out[bad] >= 0) ++bad;
  throw base::IoError(fmt::format("{}: token {} is {}; allowed: 0 .. {} (stored as {})", name,
                                  begin + static_cast<int64_t>(bad), stored_value(from, type, bad),
                                  std::numeric_limits<int32_t>::max(), name_of(type)));
}

}  // namespace trireme::data
