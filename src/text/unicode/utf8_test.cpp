// SPDX-License-Identifier: Apache-2.0
#include "text/unicode/utf8.h"

#include <gtest/gtest.h>

#include "text/unicode/char_classes.h"

namespace trireme::text {
namespace {

TEST(Utf8, every_code_point_round_trips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const CodePoint point = code_point_at(text.data());
    ASSERT_EQ(point.value, c);
    ASSERT_EQ(point.bytes, text.size());
    ASSERT_TRUE(is_valid_utf8(text));
    ASSERT_EQ(code_point_before(text.data() + text.size()).value, c);
  }
}

TEST(Utf8, invalid_bytes_are_replaced_as_in_rust) {
  const auto mark = std::string(replacement_character);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\xFF z", "a" + mark + " z"},
      {"\xC0\xAF", mark + mark},                        // overlong
      {"\xE0\x80\xAF", mark + mark + mark},             // overlong
      {"\xED\xA0\x80", mark + mark + mark},             // a surrogate
      {"\xF4\x90\x80\x80", mark + mark + mark + mark},  // above U+10FFFF
      {"\xE5\x8F", mark},                               // cut off
      {"\xF0\x9F\x91x", mark + "x"},
      {"\xE5\x8F\xE5\x8F\xAB", mark + "\xE5\x8F\xAB"},
      {"\x80\x80", mark + mark}};
  for (const auto& [bytes, wanted] : cases) {
    EXPECT_FALSE(is_valid_utf8(bytes));
    EXPECT_EQ(with_replacements(bytes), wanted);
    EXPECT_TRUE(is_valid_utf8(with_replacements(bytes)));
    std::string byte_by_byte;
    Utf8Stream stream;
    for (const char byte : bytes) stream.push({&byte, 1}, byte_by_byte);
    stream.finish(byte_by_byte);
    EXPECT_EQ(byte_by_byte, wanted);
  }
}

TEST(Utf8, streams_hold_incomplete_characters_back) {
  Utf8Stream stream;
  std::string text;
  stream.push("a\xF0\x9F", text);
  EXPECT_EQ(text, "a");
  EXPECT_FALSE(stream.is_complete());
  stream.push(
      "\x91\x8D"
      "b",
      text);
  EXPECT_EQ(text,
            "a\xF0\x9F\x91\x8D"
            "b");
  EXPECT_TRUE(stream.is_complete());
}

TEST(CharClasses, traps_have_the_classes_of_tokenizers) {
  const CharClasses& classes = CharClasses::table();
  EXPECT_FALSE(classes.is(0x180E, char_class::space));
  EXPECT_FALSE(classes.is(0x1C, char_class::space));
  EXPECT_TRUE(classes.is(0x85, char_class::space));
  EXPECT_TRUE(classes.is(0x1C89, char_class::letter));    // Unicode 16
  EXPECT_FALSE(classes.is(0x88F, char_class::letter));    // Unicode 17
  EXPECT_TRUE(classes.is(0x11DE0, char_class::numeric));  // Unicode 17
  EXPECT_FALSE(classes.is(0x11DE0, char_class::number));
  EXPECT_TRUE(classes.is(0x200D, char_class::word));
  EXPECT_TRUE(classes.is('$', char_class::punctuation));
  EXPECT_EQ(lower_case(0xC4), 0xE4U);
  EXPECT_EQ(lower_case(0x1C5), 0x1C6U);
  EXPECT_EQ(lower_case('1'), static_cast<char32_t>('1'));
}

TEST(CharClasses, complement_is_what_is_left) {
  const std::vector<CodePointRange> digits = {{'0', '9'}};
  const auto rest = complement(digits);
  ASSERT_EQ(rest.size(), 3U);  // before, up to the surrogates, behind them
  EXPECT_EQ(rest[0].last, static_cast<uint32_t>('0' - 1));
  EXPECT_EQ(rest[2].last, 0x10FFFFU);
  ASSERT_EQ(complement(rest).size(), 1U);
  EXPECT_FALSE(property_ranges("Klingon"));
}

}  // namespace
}  // namespace trireme::text
