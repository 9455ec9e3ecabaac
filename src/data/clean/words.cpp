// SPDX-License-Identifier: Apache-2.0
#include "data/clean/words.h"

#include <algorithm>
#include <array>

#include "text/unicode/char_classes.h"
#include "text/unicode/utf8.h"

namespace trireme::data {
namespace {

enum class CharKind : uint8_t { part, space, word };  // part: of a word

bool is_ascii_space(unsigned char c) {
  return c <= ' ' && (c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31));
}

constexpr std::array<text::CodePointRange, 14> unspaced_ranges = {{
    {0x0E01, 0x0E5B},    // Thai
    {0x0E81, 0x0EDF},    // Lao
    {0x1000, 0x109F},    // Burmese
    {0x1780, 0x17FF},    // Khmer
    {0x2E80, 0x2FDF},    // CJK radicals
    {0x3001, 0x30FF},    // CJK punctuation, Hiragana, Katakana
    {0x31F0, 0x31FF},    // Katakana extensions
    {0x3400, 0x4DBF},    // CJK extension A
    {0x4E00, 0x9FFF},    // CJK ideographs
    {0xA9E0, 0xA9FF},    // Burmese extended
    {0xAA60, 0xAA7F},    // Burmese extended
    {0xF900, 0xFAFF},    // CJK compatibility
    {0xFF01, 0xFF9F},    // full-width and half-width forms
    {0x20000, 0x323AF},  // CJK extensions B to H
}};

CharKind kind_of(char32_t c) {
  if (c < 0x80)
    return is_ascii_space(static_cast<unsigned char>(c)) ? CharKind::space : CharKind::part;
  if (text::CharClasses::table().is(c, text::char_class::space)) return CharKind::space;
  if (c < unspaced_ranges.front().first) return CharKind::part;
  const auto range =
      std::partition_point(unspaced_ranges.begin(), unspaced_ranges.end(),
                           [c](const text::CodePointRange& r) { return r.last < c; });
  return range != unspaced_ranges.end() && range->first <= c ? CharKind::word : CharKind::part;
}

}  // namespace

void split_words(std::string_view text, std::vector<std::string_view>& words) {
  words.clear();
  size_t begin = 0, at = 0;  // the word that is open is [begin, at)
  const auto end_word = [&] {
    if (at > begin) words.push_back(text.substr(begin, at - begin));
  };
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      if (is_ascii_space(lead)) {
        end_word();
        begin = at + 1;
      }
      ++at;
      continue;
    }
    const text::CodePoint c = text::code_point_at(text.data() + at);
    const CharKind kind = kind_of(c.value);
    if (kind != CharKind::part) {
      end_word();
      begin = at + c.bytes;
      if (kind == CharKind::word) words.push_back(text.substr(at, c.bytes));
    }
    at += c.bytes;
  }
  end_word();
}

void normalize(std::string_view text, std::string& out) {
  out.clear();
  bool has_space = false;  // before the next character
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint c = text::code_point_at(text.data() + at);
    at += c.bytes;
    if (kind_of(c.value) == CharKind::space) {
      has_space = !out.empty();
      continue;
    }
    if (has_space) out += ' ';
    has_space = false;
    if (c.value < 0x80) {
      const auto byte = static_cast<char>(c.value);
      out += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + ('a' - 'A')) : byte;
    } else {
      text::append_utf8(out, text::lower_case(c.value));
    }
  }
}

int64_t code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !text::is_continuation(c); });
}

std::string_view text_prefix(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && text::is_continuation(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

}  // namespace trireme::data
