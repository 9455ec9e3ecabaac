// SPDX-License-Identifier: Apache-2.0
// The class of a code point, as Hugging Face `tokenizers` sees it: an array lookup for the hot
// paths, and ranges for regular expressions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/unicode/tables.h"

namespace trireme::text {

// Bits of a code point.
namespace char_class {
constexpr uint8_t letter = 1;        // \p{L} of a regular expression
constexpr uint8_t number = 2;        // \p{N} of a regular expression
constexpr uint8_t space = 4;         // White_Space
constexpr uint8_t word = 8;          // \w of Rust: added tokens, pre-tokenizer Whitespace
constexpr uint8_t numeric = 16;      // char::is_numeric of Rust: pre-tokenizer Digits
constexpr uint8_t punctuation = 32;  // pre-tokenizer Punctuation
constexpr uint8_t mark = 64;         // normalizer StripAccents
constexpr uint8_t unknown_to_normalization = 128;
}  // namespace char_class

class CharClasses {
 public:
  // The only table there is, made at the first call.
  static const CharClasses& table();

  uint8_t of(char32_t c) const { return values_[blocks_[c >> 8] * 256U + (c & 0xFF)]; }
  bool is(char32_t c, uint8_t bits) const { return (of(c) & bits) != 0; }

 private:
  CharClasses();

  std::array<uint16_t, 0x1100> blocks_{};
  std::vector<uint8_t> values_;  // blocks of 256
};

// Lower case as Rust's char::to_lowercase; U+0130 is the only one that becomes two code points, and
// is returned unchanged here.
char32_t lower_case(char32_t c);

// The ranges of \p{name} for a general category, its first letter, Any, Alphabetic's kin are not
// supported; or of a script. nullopt if the name is not known.
std::optional<std::vector<CodePointRange>> property_ranges(std::string_view name);
// All other code points, surrogates left out.
std::vector<CodePointRange> complement(const std::vector<CodePointRange>& ranges);
// Sorted, with neighbours joined.
std::vector<CodePointRange> union_of(std::vector<CodePointRange> ranges);

}  // namespace trireme::text
