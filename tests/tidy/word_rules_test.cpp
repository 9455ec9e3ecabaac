// SPDX-License-Identifier: Apache-2.0
// The rules about words and sizes, applied to planted text.
#include <gtest/gtest.h>

#include "prose.h"
#include "rules.h"

namespace trireme::tidy {
namespace {

std::vector<WordRule> rules(std::string_view text) {
  Problems problems;
  std::vector<WordRule> all = parse_words(text, problems);
  EXPECT_TRUE(problems.empty()) << problems.front();
  return all;
}

TEST(TidyWords, malformed_lines_are_found) {
  for (const char* bad : {"name most_", "name => max_", "verb most_ => max_", "text (a => b"}) {
    Problems problems;
    EXPECT_TRUE(parse_words(bad, problems).empty()) << bad;
    EXPECT_EQ(problems.size(), 1U) << bad;
  }
  Problems problems;
  EXPECT_EQ(parse_words("# a comment\n\nname ^most_ => max_\n", problems).size(), 1U);
  EXPECT_TRUE(problems.empty());
}

TEST(TidyWords, names_are_looked_up_in_code_alone) {
  const auto words = rules("name ^most_ => max_");
  EXPECT_EQ(check_words({{"src/a.cpp", "int most_rows;"}}, words),
            Problems{"src/a.cpp:1: 'most_rows'; write: max_"});
  EXPECT_TRUE(check_words({{"src/a.cpp", "// most_rows\nf(\"most_rows\");"}}, words).empty());
  EXPECT_TRUE(check_words({{"src/a.cpp", "int at_most_one, Most_x;"}}, words).empty());
  EXPECT_TRUE(check_words({{"docs/a.md", "most_rows"}}, words).empty());
}

TEST(TidyWords, phrases_are_found_across_lines_with_the_line_they_begin_in) {
  const auto words = rules("text is told => receives");
  const Problems found =
      check_words({{"src/a.h", "int x;\n// A rank that\n// Is\n// told stops.\nint y;\n"}}, words);
  EXPECT_EQ(found, Problems{"src/a.h:3: 'Is told'; write: receives"});
  EXPECT_EQ(check_words({{"a.cpp", "f(\"it is \"\n  \"told\");"}}, words).size(), 0U);
  EXPECT_EQ(check_words({{"a.cpp", "f(\"it is\"\n  \"told\");"}}, words).size(), 1U);
  EXPECT_EQ(check_words({{"a.sh", "x=1\n# it is\n# told\n"}}, words).size(), 1U);
  EXPECT_EQ(check_words({{"a.md", "It is\ntold.\n"}}, words).size(), 1U);
  EXPECT_TRUE(check_words({{"a.md", "It is\n\ntold.\n```\nis told\n```\n"}}, words).empty());
  EXPECT_TRUE(check_words({{"a.cpp", "int a;  // it is\nint b;  // told\n"}}, words).empty());
}

TEST(TidyWords, kinds_choose_where_to_look) {
  const std::string code = "// Of ranks.\nf(\"Of ranks\");\n";
  EXPECT_EQ(check_words({{"a.cpp", code}}, rules("comment ^Of  => subject first")).size(), 1U);
  EXPECT_EQ(check_words({{"a.cpp", code}}, rules("shown ^Of  => subject first")).size(), 1U);
  EXPECT_EQ(check_words({{"a.cpp", code}}, rules("text ^Of  => subject first")).size(), 2U);
  EXPECT_EQ(check_words({{"a.h", "int n;  // Of ranks\n"}}, rules("comment ^Of  => x")).size(), 1U);
}

TEST(TidyWords, sentences_are_counted) {
  EXPECT_EQ(sentences_of("One."), 1);
  EXPECT_EQ(sentences_of("no full stop"), 1);
  EXPECT_EQ(sentences_of("A file x.h is read. Then 1.5 times. `f()` ends (or not.) Yes: no"), 3);
  EXPECT_EQ(sentences_of("3. **Name.** One."), 2);
  EXPECT_EQ(sentences_of("See e.g. Rank 0. Done."), 2);
}

TEST(TidyWords, long_paragraphs_are_found) {
  const std::string five = "A one. B two. C three. D four. E five.";
  EXPECT_TRUE(check_paragraphs({"a.md", five + "\n\n" + five + "\n"}).empty());
  EXPECT_EQ(check_paragraphs({"a.md", "\n" + five + "\nF six.\n"}),
            Problems{"a.md:2: a paragraph of 6 sentences; at most 5, or a list, a table or a "
                     "picture"});
  EXPECT_TRUE(check_paragraphs({"a.md", "- " + five + "\n- F six.\n"}).empty());
  EXPECT_TRUE(check_paragraphs({"a.md", "| " + five + " F six. |\n"}).empty());
}

TEST(TidyWords, crowded_folders_are_found) {
  Files files;
  for (int i = 0; i < 25; ++i) files.push_back({"src/a/" + std::to_string(i) + ".cpp", ""});
  files.push_back({"src/a/b/x.h", ""});
  files.push_back({"src/a/x.txt", ""});
  EXPECT_TRUE(check_folder_sizes(files).empty());
  files.push_back({"src/a/x.h", ""});
  EXPECT_EQ(check_folder_sizes(files),
            Problems{"src/a: 26 source files beside each other; at most 25"});
}

}  // namespace
}  // namespace trireme::tidy
