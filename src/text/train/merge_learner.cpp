// SPDX-License-Identifier: Apache-2.0
#include "text/train/merge_learner.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace trireme::text {

namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    const uint64_t key =
        uint64_t{static_cast<uint32_t>(pair.first)} << 32U | static_cast<uint32_t>(pair.second);
    return static_cast<size_t>((key ^ key >> 29U) * 0x9E3779B97F4A7C15U >> 7U);
  }
};

// A pair that may merge next, with the words where it was found. Its count can be out of date.
struct PairCandidate {
  Pair pair;
  int64_t count;
  std::vector<uint32_t> words;

  // The highest count comes first, then the lowest pair.
  bool operator<(const PairCandidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class MergeLearner {
 public:
  explicit MergeLearner(std::vector<CountedWord>& words) : words_(words) {
    for (uint32_t i = 0; i < words_.size(); ++i) {
      const auto& symbols = words_[i].symbols;
      for (size_t k = 0; k + 1 < symbols.size(); ++k) {
        change({symbols[k], symbols[k + 1]}, 1, i);
      }
    }
    queue_new_pairs();
  }

  std::vector<LearnedMerge> run(const LearnOptions& options, ProductNames& names) {
    std::vector<LearnedMerge> merges;
    while (names.size() < options.vocab_size && !queue_.empty()) {
      PairCandidate top = queue_.top();
      queue_.pop();
      const int64_t count = counts_[top.pair];
      if (top.count != count) {
        top.count = count;
        queue_.push(std::move(top));
        continue;
      }
      if (count < 1 || count < options.min_frequency) break;
      const int32_t id = names.product(top.pair.first, top.pair.second);
      merges.push_back({top.pair.first, top.pair.second, id});
      for (const uint32_t word : top.words) merge_in(word, top.pair, id);
      queue_new_pairs();
      if (options.progress) options.progress(names.size());
    }
    return merges;
  }

 private:
  void change(Pair pair, int64_t sign, uint32_t word) {
    counts_[pair] += sign * words_[word].count;
    if (sign < 0) return;
    auto& found = new_pairs_[pair];
    if (found.empty() || found.back() != word) found.push_back(word);
  }

  void queue_new_pairs() {
    for (auto& [pair, found] : new_pairs_) {
      const int64_t count = counts_[pair];
      if (count > 0) queue_.push({pair, count, std::move(found)});
    }
    new_pairs_.clear();
  }

  void merge_in(uint32_t word, const Pair& pair, int32_t id) {
    auto& symbols = words_[word].symbols;
    size_t kept = 0;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool is_pair =
          symbols[i] == pair.first && i + 1 < symbols.size() && symbols[i + 1] == pair.second;
      if (!is_pair) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        change({symbols[kept - 1], pair.first}, -1, word);
        change({symbols[kept - 1], id}, 1, word);
      }
      symbols[kept++] = id;
      ++i;
      if (i + 1 < symbols.size()) {
        change({pair.second, symbols[i + 1]}, -1, word);
        change({id, symbols[i + 1]}, 1, word);
      }
    }
    symbols.resize(kept);
  }

  std::vector<CountedWord>& words_;
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<uint32_t>, PairHash> new_pairs_;
  std::priority_queue<PairCandidate> queue_;
};

}  // namespace

std::vector<LearnedMerge> learn_merges(std::vector<CountedWord>& words, const LearnOptions& options,
                                       ProductNames& names) {
  return MergeLearner(words).run(options, names);
}

}  // namespace trireme::text
