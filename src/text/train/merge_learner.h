// SPDX-License-Identifier: Apache-2.0
// Learns merges from counted words. Pair counts are kept up to date with every merge, so that a
// merge costs what it changes and not a pass over all words.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace trireme::text {

struct CountedWord {
  std::vector<int32_t> symbols;
  int64_t count = 0;
};

struct LearnedMerge {
  int32_t left;
  int32_t right;
  int32_t id;  // of the product
};

// Returns the id of the product of two tokens, a new one or that of an equal token.
class ProductNames {
 public:
  virtual ~ProductNames() = default;
  virtual int32_t product(int32_t left, int32_t right) = 0;
  virtual int32_t size() const = 0;  // tokens so far
};

struct LearnOptions {
  int32_t vocab_size = 0;
  int64_t min_frequency = 1;
  // Called with the number of tokens after each merge. May be empty.
  std::function<void(int32_t tokens)> progress;
};

// Merges until there are `vocab_size` tokens, or no pair occurs `min_frequency` times. Changes
// `words`.
std::vector<LearnedMerge> learn_merges(std::vector<CountedWord>& words, const LearnOptions&,
                                       ProductNames& names);

}  // namespace trireme::text
