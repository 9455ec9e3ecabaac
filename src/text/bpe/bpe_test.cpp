// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/bpe/bpe_model.h"
#include "text/bpe/byte_alphabet.h"
#include "text/bpe/merge_word.h"

namespace trireme::text {
namespace {

// Scans all pairs for each merge: slow, and plainly what is wanted.
std::vector<int32_t> merged_plainly(const PairTable& merges, std::vector<int32_t> symbols) {
  while (true) {
    const Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge* merge = merges.find(symbols[i], symbols[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (best == nullptr) return symbols;
    symbols[at] = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(MergeWord, short_and_long_words_merge_as_the_plain_loop_does) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    // A random grammar over 4 symbols.
    PairTable merges(40);
    for (int32_t id = 4; id < 44; ++id) {
      const auto below = [&] { return static_cast<int32_t>(random() % static_cast<uint32_t>(id)); };
      const int32_t left = below(), right = below();
      if (merges.find(left, right) == nullptr) {
        merges.set(left, right, {static_cast<uint32_t>(id), id});
      }
    }
    MergeScratch scratch;
    for (const size_t size : {1U, 2U, 5U, 30U, 96U, 97U, 150U, 400U}) {
      std::vector<int32_t> symbols(size);
      for (int32_t& symbol : symbols) symbol = static_cast<int32_t>(random() % 4);
      const auto wanted = merged_plainly(merges, symbols);
      symbols.resize(merge_word(merges, symbols, scratch));
      EXPECT_EQ(symbols, wanted) << "round " << round << ", " << size << " symbols";
    }
  }
}

// Quadratic time would reach the time limit of the suite.
TEST(MergeWord, a_word_of_a_megabyte_is_merged) {
  PairTable merges(20);
  for (int32_t id = 1; id < 12; ++id) merges.set(id - 1, id - 1, {static_cast<uint32_t>(id), id});
  std::vector<int32_t> symbols(1 << 20, 0);
  MergeScratch scratch;
  EXPECT_EQ(merge_word(merges, symbols, scratch), size_t{1} << 9U);
}

TEST(ByteAlphabet, stands_for_all_bytes) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(bytes_of_token(in_byte_alphabet(bytes)), bytes);
  EXPECT_EQ(in_byte_alphabet(" a\n"), "\u0120a\u010A");
  EXPECT_FALSE(bytes_of_token("\u65E5"));
}

TEST(BpeModel, parts_of_a_piece_are_cut_only_where_nothing_merges) {
  // "bc" merges before "ab", so that "abc" is a + bc although "ab" is a token.
  const BpeModel model({{"a", 0}, {"b", 1}, {"c", 2}, {"bc", 3}, {"ab", 4}, {"?", 5}},
                       {{"b", "c"}, {"a", "b"}}, {.unk_token = "?"});
  BpeWorkspace workspace;
  const auto encode = [&](std::string_view text) {
    std::vector<int32_t> ids;
    model.encode_text(text, workspace, ids);
    return ids;
  };
  for (int round = 0; round < 2; ++round) {  // the second one from the cache
    EXPECT_EQ(encode("abc"), (std::vector<int32_t>{0, 3}));
    EXPECT_EQ(encode("abab"), (std::vector<int32_t>{4, 4}));
    EXPECT_EQ(encode("abxxc"), (std::vector<int32_t>{4, 5, 5, 2}));
    EXPECT_EQ(encode("ab"), (std::vector<int32_t>{4}));
  }
}

TEST(BpeModel, merges_of_unknown_tokens_are_refused) {
  EXPECT_THROW(BpeModel({{"a", 0}}, {{"a", "b"}}, {}), base::ConfigError);
  EXPECT_THROW(BpeModel({{"a", 0}, {"b", 1}}, {{"a", "b"}}, {}), base::ConfigError);
  EXPECT_THROW(BpeModel({{"a", 0}}, {}, {.unk_token = "<unk>"}), base::ConfigError);
}

}  // namespace
}  // namespace trireme::text
