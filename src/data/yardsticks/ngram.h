// SPDX-License-Identifier: Apache-2.0
// An interpolated n-gram model of a token stream: the baseline that a trained network has to beat.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace trireme::data {

// Predicts a token from the last `context` tokens (0 to 4) with Witten-Bell smoothing: the estimate
// of each context length is mixed with that of the next shorter one, the more so the more distinct
// tokens followed it; the shortest is mixed with the uniform distribution. Tokens must be below
// 256.
class NgramModel {
 public:
  explicit NgramModel(int context);

  void train(std::span<const int32_t> tokens);
  // Mean of -log p in nats over tokens[first ..]; earlier ones serve as context.
  double loss(std::span<const int32_t> tokens, size_t first) const;
  double probability(std::span<const int32_t> history, int32_t next) const;

 private:
  struct Follow {
    uint32_t count = 0;     // of all tokens seen after the context
    uint32_t distinct = 0;  // of different ones
  };
  // Keys are the context's tokens, newest in the low byte; with the next token appended for pairs.
  std::vector<std::unordered_map<uint64_t, Follow>> contexts_;  // by length
  std::vector<std::unordered_map<uint64_t, uint32_t>> pairs_;
  int context_;
};

}  // namespace trireme::data
