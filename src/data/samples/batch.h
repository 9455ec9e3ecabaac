// SPDX-License-Identifier: Apache-2.0
// Micro-batches as flat streams of tokens, and the assignment of positions of the global batch to
// ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/samples/sample_provider.h"

namespace trireme::data {

// Several samples back to back: T = samples * seq_len tokens.
struct Batch {
  std::vector<int32_t> tokens, labels, positions;  // [T]
  // [T + 1]: where sequences (samples, and documents inside them if masked) start; the first is 0,
  // ascending, padded with T.
  std::vector<int32_t> seq_offsets;
  std::vector<int64_t> samples;  // the positions of its samples

  bool operator==(const Batch&) const = default;
};

// Fills `out` with the samples of `positions`, in this order. Allocates nothing once `out` has
// grown to its size.
void fill_batch(const SampleProvider&, std::span<const int64_t> positions, Batch& out);

// How the samples of a step are distributed. Step s takes the positions [s * global_batch, (s + 1)
// * global_batch) for every split; sample k of a rank is number k * ranks + rank of the step.
struct BatchSplit {
  int64_t global_batch = 1;
  int ranks = 1, rank = 0;
  int micro_batches = 1;  // of this rank in one step; equal sizes

  int64_t samples() const { return global_batch / ranks / micro_batches; }  // of a micro-batch
};

// Throws ConfigError, with numbers, if the split does not divide.
void check_split(const BatchSplit&);
// Fills `out` with the positions of micro-batch `micro_batch` of step `step`. REQUIRES:
// check_split() passed, step >= 0, 0 <= micro_batch < micro_batches.
void batch_positions(const BatchSplit&, int64_t step, int micro_batch, std::vector<int64_t>& out);

}  // namespace trireme::data
