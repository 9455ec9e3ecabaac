// SPDX-License-Identifier: Apache-2.0
// Random tokens for benchmarks, sampled at construction: steps only copy them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "engine/step/input.h"

namespace trireme::train {

class RandomBatches final : public engine::MicrobatchSource {
 public:
  RandomBatches(int64_t vocab, int64_t sequences, int64_t seq_len)
      : sequences_(sequences), seq_len_(seq_len) {
    const auto tokens = static_cast<size_t>(sequences * seq_len);
    const auto below = static_cast<uint64_t>(vocab);
    for (size_t b = 0; b < batches_.size(); ++b) {
      batches_[b].resize(tokens + 1);
      for (size_t t = 0; t <= tokens; ++t) {
        batches_[b][t] = static_cast<int32_t>(base::rng_below(b + 1, t, below));
      }
    }
  }

  // Copies the next of a few different batches.
  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    const std::vector<int32_t>& batch = batches_[next_++ % batches_.size()];
    engine::set_equal_sequences(out, sequences_, seq_len_);
    std::copy(batch.begin(), batch.end() - 1, out.tokens.begin());
    std::copy(batch.begin() + 1, batch.end(), out.labels.begin());
  }

 private:
  int64_t sequences_, seq_len_;
  std::array<std::vector<int32_t>, 4> batches_;
  size_t next_ = 0;
};

}  // namespace trireme::train
