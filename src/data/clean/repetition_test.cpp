// SPDX-License-Identifier: Apache-2.0
#include "data/clean/repetition.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "data/clean/clean_test.h"

namespace trireme::data {
namespace {

double part(const std::string& text, RepetitionRule rule) {
  return RepetitionMeter().measure(text)[static_cast<size_t>(rule)];
}

TEST(RepetitionTest, lines_and_paragraphs_by_hand) {
  const std::string text = "aa\nbb\naa\n\naa\n";  // 4 lines, 13 characters
  EXPECT_DOUBLE_EQ(part(text, RepetitionRule::duplicate_lines), 2.0 / 4);
  EXPECT_DOUBLE_EQ(part(text, RepetitionRule::duplicate_line_characters), 4.0 / 13);
  EXPECT_DOUBLE_EQ(part(text, RepetitionRule::duplicate_paragraphs), 0);
  const std::string paragraphs = "one\ntwo\n\nthree\n\n\none\ntwo";
  EXPECT_DOUBLE_EQ(part(paragraphs, RepetitionRule::duplicate_paragraphs), 1.0 / 3);
  EXPECT_DOUBLE_EQ(part(paragraphs, RepetitionRule::duplicate_paragraph_characters), 7.0 / 24);
  EXPECT_EQ(RepetitionMeter().measure(""), RepetitionParts{});
  EXPECT_EQ(RepetitionMeter().measure("\n\n \n"), RepetitionParts{});
}

TEST(RepetitionTest, n_grams_by_hand) {
  // "a b" occurs three times: 9 of 17 characters.
  EXPECT_DOUBLE_EQ(part("a b c a b d a b e", RepetitionRule::top_2_gram), 9.0 / 17);
  EXPECT_DOUBLE_EQ(part("a b c a b d a b e", RepetitionRule::top_3_gram), 0);
  EXPECT_DOUBLE_EQ(part("one two", RepetitionRule::top_2_gram), 0);  // once is no repetition
  // The second half repeats 5 of 5 words: 9 of 19 characters.
  EXPECT_DOUBLE_EQ(part("a b c d e a b c d e", RepetitionRule::duplicate_5_grams), 9.0 / 19);
  EXPECT_DOUBLE_EQ(part("a b c d e a b c d e", RepetitionRule::duplicate_6_grams), 0);
  // Characters count, not bytes.
  EXPECT_DOUBLE_EQ(part("\u00e9 b c \u00e9 b", RepetitionRule::top_2_gram), 6.0 / 9);
}

// The same rules with strings and ordered maps.
TEST(RepetitionTest, random_texts_agree_with_plain_counting) {
  TestRandom random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> words(10 + random.below(120));
    const uint64_t vocabulary = 2 + random.below(12);
    for (std::string& word : words) word = std::string(1 + random.below(vocabulary), 'x');
    const std::string text = joined(words);
    const auto ngram = [&](size_t i, size_t size) {
      return joined({words.begin() + static_cast<std::ptrdiff_t>(i),
                     words.begin() + static_cast<std::ptrdiff_t>(i + size)});
    };
    const RepetitionParts parts = RepetitionMeter().measure(text);
    for (size_t size = 2; size <= 10; ++size) {
      std::map<std::string, size_t> counts;
      size_t top = 0, duplicate = 0;
      for (size_t i = 0; i + size <= words.size(); ++i) {
        const size_t count = ++counts[ngram(i, size)];
        if (count > 1) top = std::max(top, count * ngram(i, size).size());
      }
      std::set<std::string> known;
      for (size_t i = 0; i + size <= words.size();) {
        const bool is_new = known.insert(ngram(i, size)).second;
        if (!is_new) duplicate += ngram(i, size).size();
        i += is_new ? 1 : size;
      }
      const size_t wanted = size <= 4 ? top : duplicate;
      const size_t rule = size <= 4 ? 4 + size - 2 : 7 + size - 5;
      EXPECT_DOUBLE_EQ(parts[rule], std::min(1.0, static_cast<double>(wanted) /
                                                      static_cast<double>(text.size())))
          << size;
    }
  }
}

TEST(RepetitionTest, limits_are_those_of_gopher_and_can_be_changed) {
  const RepetitionLimits defaults;
  EXPECT_EQ(repetition_limits_from_text(""), defaults);
  const RepetitionLimits changed = repetition_limits_from_text("top_3_gram=0.5,duplicate_lines=1");
  EXPECT_EQ(changed.max[5], 0.5);
  EXPECT_EQ(changed.max[0], 1);
  EXPECT_EQ(changed.max[4], defaults.max[4]);
  RepetitionMeter meter;
  const std::string text = "spam and eggs spam and eggs spam and eggs spam and eggs";
  const auto found = meter.above(text, defaults);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rule, RepetitionRule::top_2_gram);
  EXPECT_GT(found->part, 0.2);
  RepetitionLimits off;
  off.max.fill(1);
  EXPECT_FALSE(meter.above(text, off).has_value());
  EXPECT_FALSE(meter.above("a text of words that are all different from each other", defaults));
}

TEST(RepetitionTest, bad_limits_are_refused) {
  const auto refusal = [](const char* text) {
    return message_of<base::ConfigError>([&] { repetition_limits_from_text(text); });
  };
  EXPECT_TRUE(says(refusal("top_5_gram=0.1"), {"limit 'top_5_gram=0.1'", "duplicate_10_grams"}));
  EXPECT_TRUE(says(refusal("top_2_gram"), {"limit 'top_2_gram'", "NAME=VALUE"}));
  EXPECT_TRUE(says(refusal("top_2_gram=2"), {"the value is '2'", "from 0 to 1"}));
  EXPECT_TRUE(says(refusal("top_2_gram=0.1x"), {"the value is '0.1x'"}));
  EXPECT_TRUE(says(refusal("top_2_gram=nan"), {"the value is 'nan'"}));
}

}  // namespace
}  // namespace trireme::data
