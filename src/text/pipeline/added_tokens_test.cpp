// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/added_tokens.h"

#include <gtest/gtest.h>

namespace trireme::text {
namespace {

// Contents of the matches, with the bytes that they take.
std::string found(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokens) matcher.add(token.content, token);
  std::vector<AddedTokenMatcher::Match> matches;
  matcher.find(text, matches);
  std::string all;
  for (const auto& match : matches) {
    all += match.token->content + "[" + std::to_string(match.begin) + "," +
           std::to_string(match.end) + ")";
  }
  return all;
}

TEST(AddedTokens, leftmost_then_longest_wins) {
  const std::vector<AddedToken> tokens = {
      {.content = "ab"}, {.content = "abc"}, {.content = "bcd"}};
  EXPECT_EQ(found(tokens, "xabcd ab bcd"), "abc[1,4)ab[6,8)bcd[9,12)");
}

TEST(AddedTokens, white_space_beside_a_token_is_taken_once) {
  const std::vector<AddedToken> tokens = {{.content = "<l>", .lstrip = true},
                                          {.content = "<r>", .rstrip = true}};
  EXPECT_EQ(found(tokens, "a <r>  <l> b"), "<r>[2,7)<l>[7,10)");
}

TEST(AddedTokens, white_space_that_is_a_token_vanishes_if_another_has_taken_it) {
  const std::vector<AddedToken> tokens = {{.content = "\t\t", .lstrip = true},
                                          {.content = "<r>", .rstrip = true}};
  EXPECT_EQ(found(tokens, "a \t\tb"), "\t\t[1,4)");
  EXPECT_EQ(found(tokens, "<r>\t\tb"), "<r>[0,5)");
  EXPECT_EQ(found(tokens, "<r>\t\t\tb"), "<r>[0,6)");
}

}  // namespace
}  // namespace trireme::text
