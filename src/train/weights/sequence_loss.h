// SPDX-License-Identifier: Apache-2.0
// Sums the losses of a micro-batch's tokens by sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::train {

struct SequenceLoss {
  double loss_sum = 0;
  int64_t tokens = 0;  // with a label
  int64_t bytes = 0;   // of text of these tokens; 0: not known
};

// Both spans are [sequences, seq_len]; a negative label has no loss.
inline std::vector<SequenceLoss> sequence_losses(std::span<const float> token_losses,
                                                 std::span<const int32_t> labels,
                                                 int64_t sequences) {
  std::vector<SequenceLoss> sums(static_cast<size_t>(sequences));
  const size_t seq_len = token_losses.size() / sums.size();
  for (size_t t = 0; t < token_losses.size(); ++t) {
    if (labels[t] < 0) continue;
    SequenceLoss& sum = sums[t / seq_len];
    sum.loss_sum += static_cast<double>(token_losses[t]);
    ++sum.tokens;
  }
  return sums;
}

// Adds the bytes of text of the labels. `token_bytes` has those of every token; empty: not known.
inline void add_bytes(std::span<const int32_t> labels, std::span<const int32_t> token_bytes,
                      std::vector<SequenceLoss>& sums) {
  if (token_bytes.empty()) return;
  const size_t seq_len = labels.size() / sums.size();
  for (size_t t = 0; t < labels.size(); ++t) {
    const auto label = static_cast<size_t>(labels[t]);
    if (labels[t] >= 0 && label < token_bytes.size()) sums[t / seq_len].bytes += token_bytes[label];
  }
}

}  // namespace trireme::train
