// SPDX-License-Identifier: Apache-2.0
// Tables of characters, as Hugging Face `tokenizers` has them (scripts/make_unicode_tables.py).
// Code uses char_classes.h; these are its source.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme::text {

// Both ends are included.
struct CodePointRange {
  uint32_t first;
  uint32_t last;
};

// `category` is the general category: "Lu", "Nd", ... Code points outside of all ranges are Cn.
struct CategoryRange {
  uint32_t first;
  uint32_t last;
  const char* category;
};

// Every step-th code point from first to last has the lower case c + shift.
struct LowerRange {
  uint32_t first;
  uint32_t last;
  uint32_t step;
  int32_t shift;
};

// All are sorted, and ranges do not overlap.
std::span<const CategoryRange> category_ranges();
std::span<const LowerRange> lower_ranges();  // one code point to one; U+0130 is not listed
std::span<const CodePointRange> white_space_ranges();
std::span<const CodePointRange> word_ranges();              // \w of Oniguruma
std::span<const CodePointRange> rust_numeric_ranges();      // char::is_numeric of Rust
std::span<const CodePointRange> rust_punctuation_ranges();  // of the pre-tokenizer Punctuation
std::span<const CodePointRange> rust_mark_ranges();         // of the normalizer StripAccents
// Code points that newer tables compose, decompose or reorder, and that `tokenizers` leaves alone.
std::span<const CodePointRange> unknown_to_normalization_ranges();
// A script, or Emoji; empty if the name is not known.
std::span<const CodePointRange> script_ranges(std::string_view name);

}  // namespace trireme::text
