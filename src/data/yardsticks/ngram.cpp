// SPDX-License-Identifier: Apache-2.0
#include "data/yardsticks/ngram.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trireme::data {
namespace {

constexpr int64_t alphabet = 256;

// Returns the last `length` tokens before position `at`, packed.
uint64_t key_of(std::span<const int32_t> tokens, size_t at, size_t length) {
  uint64_t key = 0;
  for (size_t i = at - length; i < at; ++i) key = (key << 8) | static_cast<uint64_t>(tokens[i]);
  return key;
}

}  // namespace

NgramModel::NgramModel(int context)
    : contexts_(static_cast<size_t>(context) + 1),
      pairs_(static_cast<size_t>(context) + 1),
      context_(context) {
  TRIREME_CHECK(context >= 0 && context <= 4, "context {}", context);
}

void NgramModel::train(std::span<const int32_t> tokens) {
  for (size_t t = 0; t < tokens.size(); ++t) {
    TRIREME_CHECK(tokens[t] >= 0 && tokens[t] < alphabet, "token {}", tokens[t]);
    const size_t longest = std::min(t, static_cast<size_t>(context_));
    for (size_t length = 0; length <= longest; ++length) {
      const uint64_t key = key_of(tokens, t, length);
      Follow& follow = contexts_[length][key];
      uint32_t& pair = pairs_[length][(key << 8) | static_cast<uint64_t>(tokens[t])];
      ++follow.count;
      if (pair++ == 0) ++follow.distinct;
    }
  }
}

double NgramModel::probability(std::span<const int32_t> history, int32_t next) const {
  double p = 1.0 / static_cast<double>(alphabet);
  const size_t longest = std::min(history.size(), static_cast<size_t>(context_));
  for (size_t length = 0; length <= longest; ++length) {
    const uint64_t key = key_of(history, history.size(), length);
    const auto follow = contexts_[length].find(key);
    if (follow == contexts_[length].end()) break;  // then no longer context occurred either
    const auto pair = pairs_[length].find((key << 8) | static_cast<uint64_t>(next));
    const double seen = pair == pairs_[length].end() ? 0 : pair->second;
    const double total = follow->second.count, distinct = follow->second.distinct;
    p = (seen + distinct * p) / (total + distinct);
  }
  return p;
}

double NgramModel::loss(std::span<const int32_t> tokens, size_t first) const {
  TRIREME_CHECK(first < tokens.size(), "{} of {} tokens", first, tokens.size());
  double sum = 0;
  for (size_t t = first; t < tokens.size(); ++t) {
    const size_t from = t - std::min(t, static_cast<size_t>(context_));
    sum -= std::log(probability(tokens.subspan(from, t - from), tokens[t]));
  }
  return sum / static_cast<double>(tokens.size() - first);
}

}  // namespace trireme::data
