// SPDX-License-Identifier: Apache-2.0
#include "text/unicode/char_classes.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>

namespace trireme::text {

namespace {

constexpr uint32_t code_point_count = 0x110000;

void set_bits(std::vector<uint8_t>& flat, std::span<const CodePointRange> ranges, uint8_t bits) {
  for (const CodePointRange& range : ranges) {
    for (uint32_t c = range.first; c <= range.last; ++c) flat[c] |= bits;
  }
}

}  // namespace

const CharClasses& CharClasses::table() {
  static const CharClasses classes;
  return classes;
}

CharClasses::CharClasses() {
  std::vector<uint8_t> flat(code_point_count);
  set_bits(flat, *property_ranges("L"), char_class::letter);
  set_bits(flat, *property_ranges("N"), char_class::number);
  set_bits(flat, white_space_ranges(), char_class::space);
  set_bits(flat, word_ranges(), char_class::word);
  flat[0x200C] |= char_class::word;  // Rust counts the two joiners, Oniguruma does not
  flat[0x200D] |= char_class::word;
  set_bits(flat, rust_numeric_ranges(), char_class::numeric);
  set_bits(flat, rust_punctuation_ranges(), char_class::punctuation);
  set_bits(flat, rust_mark_ranges(), char_class::mark);
  set_bits(flat, unknown_to_normalization_ranges(), char_class::unknown_to_normalization);
  std::map<std::string, uint16_t> numbers;  // by content of a block
  for (uint32_t block = 0; block < code_point_count / 256; ++block) {
    const auto begin = flat.begin() + block * 256;
    const auto number = static_cast<uint16_t>(numbers.size());
    const auto [found, is_new] = numbers.emplace(std::string(begin, begin + 256), number);
    if (is_new) values_.insert(values_.end(), begin, begin + 256);
    blocks_[block] = found->second;
  }
}

char32_t lower_case(char32_t c) {
  const auto ranges = lower_ranges();
  const auto found = std::lower_bound(
      ranges.begin(), ranges.end(), c,
      [](const LowerRange& range, char32_t wanted) { return range.last < wanted; });
  if (found == ranges.end() || c < found->first || (c - found->first) % found->step != 0) return c;
  return static_cast<char32_t>(static_cast<int64_t>(c) + found->shift);
}

std::optional<std::vector<CodePointRange>> property_ranges(std::string_view name) {
  std::vector<CodePointRange> ranges;
  if (name == "Any") return std::vector<CodePointRange>{{0, 0xD7FF}, {0xE000, 0x10FFFF}};
  for (const CategoryRange& range : category_ranges()) {
    const std::string_view category = range.category;
    if (category == name || (name.size() == 1 && category.front() == name.front())) {
      ranges.push_back({range.first, range.last});
    }
  }
  if (name == "C" || name == "Cn") {  // what the table leaves out is not assigned
    std::vector<CodePointRange> assigned;
    for (const CategoryRange& range : category_ranges()) {
      assigned.push_back({range.first, range.last});
    }
    for (const CodePointRange& range : complement(assigned)) ranges.push_back(range);
  }
  if (ranges.empty()) {
    const auto script = script_ranges(name);
    ranges.assign(script.begin(), script.end());
  }
  if (ranges.empty()) return std::nullopt;
  return union_of(std::move(ranges));
}

std::vector<CodePointRange> complement(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> taken = ranges;
  taken.push_back({0xD800, 0xDFFF});
  std::vector<CodePointRange> rest;
  uint32_t next = 0;
  for (const CodePointRange& range : union_of(std::move(taken))) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next < code_point_count) rest.push_back({next, code_point_count - 1});
  return rest;
}

std::vector<CodePointRange> union_of(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  std::vector<CodePointRange> joined;
  for (const CodePointRange& range : ranges) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

}  // namespace trireme::text
