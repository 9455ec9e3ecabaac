// SPDX-License-Identifier: Apache-2.0
// Words, shingles, signatures and bands against plain definitions.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "data/clean/clean_test.h"
#include "data/clean/exact_duplicates.h"
#include "data/clean/near/bands.h"
#include "data/clean/near/minhash.h"
#include "data/clean/near/shingles.h"
#include "data/clean/words.h"

namespace trireme::data {
namespace {

std::vector<std::string> words_of_text(std::string_view text) {
  std::vector<std::string_view> views;
  split_words(text, views);
  return {views.begin(), views.end()};
}

std::vector<uint64_t> set_of(std::string_view text, const ShingleOptions& options = {}) {
  std::vector<uint64_t> hashes;
  const std::string_view parts[] = {text};
  Shingler(options).hash(parts, hashes);
  make_set(hashes);
  return hashes;
}

TEST(WordsTest, words_are_what_white_space_separates) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words_of_text("  one two\tthree\r\n four "), (Words{"one", "two", "three", "four"}));
  EXPECT_EQ(words_of_text(""), Words{});
  EXPECT_EQ(words_of_text(" \n\v\f"), Words{});
  EXPECT_EQ(words_of_text("a\u00a0b\u2003c\u3000d\u2028e\u0085f\x1cg"),
            (Words{"a", "b", "c", "d", "e", "f", "g"}));
  EXPECT_EQ(words_of_text("na\u00efve \u043c\u0438\u0440 \u200bx"),
            (Words{"na\u00efve", "\u043c\u0438\u0440", "\u200bx"}));
}

TEST(WordsTest, characters_of_scripts_without_spaces_are_words) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words_of_text("ab\u4e2d\u6587cd"), (Words{"ab", "\u4e2d", "\u6587", "cd"}));
  EXPECT_EQ(words_of_text("\u3072\u3089 \u30ab"), (Words{"\u3072", "\u3089", "\u30ab"}));
  EXPECT_EQ(words_of_text("\u0e01\u0e32"), (Words{"\u0e01", "\u0e32"}));
  EXPECT_EQ(words_of_text("\U00020000x"), (Words{"\U00020000", "x"}));
  EXPECT_EQ(words_of_text("\ud55c\uad6d \uc5b4"), (Words{"\ud55c\uad6d", "\uc5b4"}));  // Korean
}

TEST(WordsTest, normalization_ignores_case_and_runs_of_white_space) {
  std::string out;
  normalize("  One\n\n TWO\u00a0\u00c9t\u00c9 \u041c ", out);
  EXPECT_EQ(out, "one two \u00e9t\u00e9 \u043c");
  EXPECT_EQ(text_prefix("a\u00e9b", 2), "a");
  EXPECT_EQ(text_prefix("a\u00e9b", 3), "a\u00e9");
  EXPECT_EQ(code_points("a\u00e9\u4e2d"), 3);
}

TEST(ShinglesTest, similarity_is_that_of_plain_sets) {
  TestRandom random(1);
  for (int i = 0; i < 100; ++i) {
    std::vector<std::string> a = random.words(1 + random.below(80)), b = a;
    for (uint64_t k = random.below(8); k > 0; --k) b[random.below(b.size())] = random.word();
    if (random.below(3) == 0) b.insert(b.end(), a.begin(), a.end());
    for (const int size : {1, 2, 5}) {
      const auto units = static_cast<size_t>(size);
      const ShingleOptions options{.size = size};
      EXPECT_DOUBLE_EQ(
          jaccard(set_of(joined(a), options), set_of(joined(b), options)),
          plain_jaccard(plain_shingles(joined(a), units), plain_shingles(joined(b), units)));
    }
  }
}

TEST(ShinglesTest, units_parts_and_short_texts) {
  EXPECT_EQ(set_of("one two").size(), 1U);  // shorter than a shingle
  EXPECT_EQ(set_of("one two"), set_of("one  two\n"));
  EXPECT_NE(set_of("one two"), set_of("two one"));
  EXPECT_TRUE(set_of(" \n").empty());
  EXPECT_TRUE(set_of(" \n", {.unit = ShingleUnit::chars}).empty());
  EXPECT_EQ(set_of("abcdefg", {.unit = ShingleUnit::chars, .size = 3}).size(), 5U);
  EXPECT_EQ(set_of("One  Two", {.normalized = true}), set_of("one two", {.normalized = true}));
  std::vector<uint64_t> both;
  const std::string_view parts[] = {"one two", "three four five"};
  Shingler({}).hash(parts, both);
  EXPECT_EQ(both, set_of("one two three four five"));
  EXPECT_EQ(jaccard({}, {}), 0);
  EXPECT_TRUE(says(message_of<base::ConfigError>([] { Shingler({.size = 0}); }),
                   {"shingles of 0 words", "1 .. 1000"}));
  EXPECT_TRUE(says(message_of<base::ConfigError>([] { shingle_unit_from_name("bytes"); }),
                   {"'bytes'", "words, chars"}));
}

// The mean error shows a bias, the mean square whether permutations depend on each other.
TEST(MinHashTest, estimates_have_the_mean_and_variance_of_the_theory) {
  TestRandom random(2);
  for (const int permutations : {128, 50}) {
    for (const double similarity : {0.3, 0.5, 0.8, 0.95}) {
      double sum = 0, squares = 0;
      constexpr int pairs = 400;
      for (int pair = 0; pair < pairs; ++pair) {
        // Sets of 100 to 1100 shingles of which a part is shared.
        const auto all = static_cast<int>(100 + random.below(1000));
        const int shared = static_cast<int>(std::lround(similarity * all));
        std::vector<uint64_t> a, b;
        for (int i = 0; i < all; ++i) {
          const uint64_t hash = random.below(~uint64_t{0});
          if (i < shared || i % 2 == 0) a.push_back(hash);
          if (i < shared || i % 2 == 1) b.push_back(hash);
        }
        const MinHash minhash(permutations, 1 + random.below(1000));
        std::vector<uint32_t> x(static_cast<size_t>(permutations)), y = x;
        minhash.sign(a, x);
        minhash.sign(b, y);
        const double error = estimated_jaccard(x, y) - static_cast<double>(shared) / all;
        sum += error;
        squares += error * error;
      }
      const double variance = similarity * (1 - similarity) / permutations;
      EXPECT_LT(std::abs(sum / pairs), 4 * std::sqrt(variance / pairs)) << similarity;
      // The square of a normal error has a relative deviation of sqrt(2 / pairs) = 0.07.
      EXPECT_LT(squares / pairs, variance * 1.35) << similarity;
      EXPECT_GT(squares / pairs, variance * 0.65) << similarity;
    }
  }
}

TEST(MinHashTest, signatures_depend_on_the_set_only) {
  const MinHash minhash(40);
  std::vector<uint32_t> a(40), b(40), none(40);
  minhash.sign(std::vector<uint64_t>{uint64_t{1} << 40, uint64_t{9} << 33, 77}, a);
  minhash.sign(std::vector<uint64_t>{77, uint64_t{9} << 33, 77, uint64_t{1} << 40}, b);
  minhash.sign({}, none);
  EXPECT_EQ(a, b);
  EXPECT_EQ(none, std::vector<uint32_t>(40, 0xffffffffU));
}

TEST(BandsTest, pairs_at_the_threshold_are_found_and_few_others) {
  EXPECT_DOUBLE_EQ(detection({.bands = 2, .rows = 3}, 0.5), 1 - std::pow(1 - 0.125, 2));
  for (const double threshold : {0.3, 0.5, 0.7, 0.8, 0.9, 1.0}) {
    const Bands bands = choose_bands(128, threshold);
    EXPECT_LE(bands.bands * bands.rows, 128);
    EXPECT_GE(detection(bands, threshold), 0.97) << threshold;
    // No bands that find as many have more rows, that is, fewer candidates below the threshold.
    for (int rows = bands.rows + 1; rows <= 128; ++rows) {
      EXPECT_LT(detection({.bands = 128 / rows, .rows = rows}, threshold), 0.97) << threshold;
    }
    EXPECT_LT(bands.bands == 1 ? 0 : detection({bands.bands - 1, bands.rows}, threshold), 0.97);
  }
  EXPECT_EQ(choose_bands(128, 0.8), (Bands{.bands = 15, .rows = 7}));
  // Too few permutations: as many as possible are found.
  EXPECT_EQ(choose_bands(4, 0.5), (Bands{.bands = 4, .rows = 1}));
}

TEST(BandsTest, keys_are_equal_where_all_rows_are) {
  const Bands bands{.bands = 3, .rows = 2};
  std::vector<uint64_t> a(3), b(3);
  band_keys(bands, std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7}, a);
  band_keys(bands, std::vector<uint32_t>{1, 2, 3, 9, 5, 6, 8}, b);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_NE(a[1], b[1]);
  EXPECT_EQ(a[2], b[2]);
}

TEST(ExactDuplicatesTest, the_first_of_equal_hashes_is_named) {
  base::ThreadPool pool(2);
  const std::vector<TextHash> hashes = {{1, 1}, {~uint64_t{0}, 5}, {1, 2},
                                        {1, 1}, {~uint64_t{0}, 5}, {1, 1}};
  std::set<std::pair<uint32_t, uint32_t>> found;
  find_exact_duplicates(
      pool,
      [&](const auto& use) {
        for (uint32_t i = 0; i < hashes.size(); ++i) use(i, hashes[i]);
      },
      [&](uint32_t document, uint32_t first) { found.emplace(document, first); });
  EXPECT_EQ(found, (std::set<std::pair<uint32_t, uint32_t>>{{3, 0}, {4, 1}, {5, 0}}));
}

TEST(ExactDuplicatesTest, hashes_respect_parts_and_normalization) {
  using Parts = std::vector<std::string_view>;
  const std::string same = "a b";  // at another address
  EXPECT_EQ(text_hash(Parts{"a b"}, false), text_hash(Parts{same}, false));
  EXPECT_NE(text_hash(Parts{"a b"}, false), text_hash(Parts{"A  b"}, false));
  EXPECT_EQ(text_hash(Parts{"a b"}, true), text_hash(Parts{" A  b"}, true));
  EXPECT_NE(text_hash(Parts{"ab", "c"}, false), text_hash(Parts{"a", "bc"}, false));
}

}  // namespace
}  // namespace trireme::data
