// SPDX-License-Identifier: Apache-2.0
// Recall and precision of near-duplicates on generated corpora, against all pairs by plain sets.
// Recall: of the pairs whose similarity is 0.1 above the threshold or more, at least 95 % do not
// both survive. Precision: at least 99 % of the removed documents have a similarity to the kept one
// that is at most 0.1 below the threshold.
#include <gtest/gtest.h>

#include <map>

#include "data/clean/clean_test.h"

namespace trireme::data {
namespace {

// Families of variants of a text, with similarities of 0.2 to 1.
std::vector<std::string> families(uint64_t seed, size_t count, size_t members) {
  TestRandom random(seed);
  std::vector<std::string> texts;
  for (size_t family = 0; family < count; ++family) {
    const std::vector<std::string> original = random.words(40 + random.below(160));
    for (size_t member = 0; member < members; ++member) {
      std::vector<std::string> words = original;
      // A changed word changes up to five shingles.
      const uint64_t changes = random.below(random.below(2) == 0 ? 3 : words.size() / 8);
      for (uint64_t i = 0; i < changes; ++i) words[random.below(words.size())] = random.word();
      if (random.below(4) == 0) words.resize(words.size() * 9 / 10);
      texts.push_back(joined(words));
    }
  }
  // Members of a family are neighbours in half of the corpora.
  for (size_t i = texts.size(); seed % 2 == 0 && i > 1; --i) {
    std::swap(texts[i - 1], texts[random.below(i)]);
  }
  return texts;
}

struct Pair {
  size_t first, second;
  double similarity;
};

// Returns all pairs that share a shingle.
std::vector<Pair> all_pairs(const std::vector<std::string>& texts) {
  std::vector<std::set<std::string>> sets;
  std::map<std::string, std::vector<size_t>> owners;
  for (size_t i = 0; i < texts.size(); ++i) {
    sets.push_back(plain_shingles(texts[i], 5));
    for (const std::string& shingle : sets.back()) owners[shingle].push_back(i);
  }
  std::set<std::pair<size_t, size_t>> pairs;
  for (const auto& [shingle, documents] : owners) {
    for (size_t i = 0; i < documents.size(); ++i) {
      for (size_t j = i + 1; j < documents.size(); ++j) pairs.emplace(documents[i], documents[j]);
    }
  }
  std::vector<Pair> result;
  for (const auto& [i, j] : pairs) result.push_back({i, j, plain_jaccard(sets[i], sets[j])});
  return result;
}

class RecallTest : public CleanFilesTest, public testing::WithParamInterface<double> {};

TEST_P(RecallTest, similar_pairs_do_not_survive_and_removed_ones_are_similar) {
  const double threshold = GetParam();
  for (const uint64_t seed : {3, 4}) {
    const std::vector<std::string> texts = families(seed, 120, 6);
    const std::vector<Pair> pairs = all_pairs(texts);
    std::string input;
    for (const std::string& text : texts) input += json_line(text);
    CleanOptions options;
    options.inputs = {write("in.jsonl", input).string()};
    options.output = path("out.jsonl");
    options.replaces_output = true;
    options.workers = 2;
    options.near->threshold = threshold;
    for (const bool compares_texts : {true, false}) {
      options.near->compares_texts = compares_texts;
      clean_documents(options);
      std::map<size_t, std::pair<size_t, double>> removed;  // by document: the kept one
      for (const base::Json& line : lines("out.jsonl.removed.jsonl")) {
        removed[line.at("line").get<size_t>() - 1] = {line.at("kept").at("line").get<size_t>() - 1,
                                                      line.at("similarity").get<double>()};
      }
      ASSERT_EQ(texts.size() - removed.size(), this->texts("out.jsonl").size());
      std::map<std::pair<size_t, size_t>, double> similarity;
      int64_t above = 0, missed = 0, at_threshold = 0, missed_at_threshold = 0;
      for (const Pair& pair : pairs) {
        similarity[{pair.first, pair.second}] = pair.similarity;
        const bool survives = !removed.contains(pair.first) && !removed.contains(pair.second);
        const bool is_above = pair.similarity >= std::min(1.0, threshold + 0.1);
        above += is_above ? 1 : 0;
        missed += is_above && survives ? 1 : 0;
        at_threshold += pair.similarity >= threshold ? 1 : 0;
        missed_at_threshold += pair.similarity >= threshold && survives ? 1 : 0;
      }
      ASSERT_GT(at_threshold, 20);
      EXPECT_LE(missed, above / 20) << "of " << above << " pairs, seed " << seed;
      int64_t wrong = 0;
      for (const auto& [document, kept] : removed) {
        EXPECT_FALSE(removed.contains(kept.first)) << "the kept one is removed";
        EXPECT_LT(kept.first, document);
        const double exact = similarity[{kept.first, document}];
        wrong += exact < threshold - 0.1 ? 1 : 0;
        if (!compares_texts) continue;
        EXPECT_GE(exact, threshold);
        EXPECT_NEAR(kept.second, exact, 1e-6);
      }
      EXPECT_LE(wrong * 100, static_cast<int64_t>(removed.size())) << "seed " << seed;
      if (compares_texts) {
        // Bands find 97 % of the pairs at the threshold itself.
        EXPECT_LE(missed_at_threshold, at_threshold / 20) << "of " << at_threshold;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Thresholds, RecallTest, testing::Values(0.5, 0.7, 0.8, 0.9),
                         [](const auto& parameter) {
                           return fmt::format("t{}", static_cast<int>(parameter.param * 10));
                         });

}  // namespace
}  // namespace trireme::data
