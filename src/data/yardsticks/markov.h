// SPDX-License-Identifier: Apache-2.0
// A random Markov source with a known entropy rate: the exact loss that a language model can reach
// on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

// Tokens 0 .. vocab - 1; the next one depends on the last `order`. Transition rows are sampled from
// the seed; a larger `sharpness` makes them more uneven and the entropy lower. REQUIRES: vocab >=
// 2, order >= 0, vocab^order <= 2^20.
class MarkovSource {
 public:
  MarkovSource(uint64_t seed, int vocab, int order, double sharpness);

  int vocab() const { return vocab_; }
  // Nats per token of an endless stream: entropy of the rows, weighted by the stationary
  // distribution of contexts.
  double entropy_rate() const { return entropy_rate_; }

  // Fills `out` with the first tokens of stream number `stream`; every call gives the same. Streams
  // start at a stationary context.
  void generate(uint64_t stream, std::span<int32_t> out) const;
  // Natural log of the probability of `next` after `context` (the last `order` tokens, oldest
  // first).
  double log_probability(std::span<const int32_t> context, int32_t next) const;

 private:
  int64_t index_of(std::span<const int32_t> context) const;
  std::span<const double> row(int64_t context) const;

  uint64_t seed_;
  int vocab_, order_;
  int64_t contexts_;
  std::vector<double> rows_;        // [contexts, vocab]
  std::vector<double> stationary_;  // [contexts]
  double entropy_rate_ = 0;
};

}  // namespace trireme::data
