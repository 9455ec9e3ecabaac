// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/oniguruma.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/regex.h"

namespace trireme::text {
namespace {

TEST(Oniguruma, simple_patterns_are_kept) {
  EXPECT_EQ(pcre2_pattern("'s| ?a+|(?:b|c)*?x{2,3}(?!y)(?i:q)"),
            "'s| ?a+|(?:b|c)*?x{2,3}(?!y)(?i:q)");
  EXPECT_EQ(pcre2_pattern("a{,3}"), "a{0,3}");
  EXPECT_EQ(pcre2_pattern("a{b"), "a\\{b");
  EXPECT_EQ(pcre2_pattern(R"(\.\n\-)"), R"(\x{2e}\x{a}\x{2d})");
}

TEST(Oniguruma, classes_become_ranges) {
  EXPECT_EQ(pcre2_pattern("[a-c]"), R"([\x{61}-\x{63}])");
  EXPECT_EQ(pcre2_pattern("[]a]"), R"([\x{5d}\x{61}])");
  EXPECT_EQ(pcre2_pattern("[a-c&&[^b]]"), R"([\x{61}\x{63}])");
  EXPECT_EQ(pcre2_pattern(R"([\h&&[^0-9a]])"), R"([\x{41}-\x{46}\x{62}-\x{66}])");
  EXPECT_EQ(pcre2_pattern("[^\\s\\S]"), "(?!)");
  EXPECT_EQ(pcre2_pattern(R"(\p{Zl})"), R"(\x{2028})");
  EXPECT_EQ(pcre2_pattern(R"([a\-c])"), R"([\x{2d}\x{61}\x{63}])");
}

TEST(Oniguruma, patterns_that_mean_something_else_are_refused) {
  for (const char* bad : {"(",
                          ")",
                          "a)",
                          "[a",
                          "[",
                          "[]",
                          "\\",
                          "[a-",
                          "\\p",
                          "\\pL",
                          "\\p{Klingon}",
                          "(?m:a)",
                          "(*FAIL)",
                          "(*LIMIT_MATCH=1)a",
                          "a(*ACCEPT)b",
                          "(?x)a",
                          "a(?i)b",
                          "(?<name>a)",
                          "a{1,2}+",
                          "\\K",
                          "\\X",
                          "\\g<1>",
                          "[[:alpha:]]",
                          "(?i:ss)",
                          "(?i:\u00E9)",
                          "\\x{110000}",
                          "\\ud800",
                          "[z-a]",
                          "a{99999999999999}",
                          "[a-\\s]",
                          "(?i:fi)"}) {
    EXPECT_THROW((void)pcre2_pattern(bad), base::ConfigError) << bad;
  }
}

TEST(Regex, malformed_patterns_are_refused_with_a_reason) {
  for (const char* bad : {"*a", "a**", "(?<=a+)b"}) {
    EXPECT_THROW(Regex{bad}, base::ConfigError) << bad;
  }
}

TEST(Regex, long_runs_do_not_exhaust_the_stack) {
  if (!has_regex()) GTEST_SKIP() << "this build is without PCRE2";
  const Regex regex("\\A(?:a|b)+c|x");  // tried once: at every place it would take minutes
  std::vector<Span> matches;
  regex.find_all(std::string(200000, 'a') + "x", matches);
  EXPECT_GE(matches.size(), 1U);
}

}  // namespace
}  // namespace trireme::text
