// SPDX-License-Identifier: Apache-2.0
// Leg: consecutive steps of a run with the same sequence length and batch sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace trireme::train {

// Consecutive phases with the same sequence length and batch sizes: one engine runs them. Steps
// count from 1.
struct Leg {
  std::string name;  // of its first phase
  int64_t first_step = 1, last_step = 0;
  int64_t seq_len = 0, global_batch_size = 0, local_batch_size = 0;
  // Step s takes the samples from (s - 1) * global_batch_size + shift on.
  int64_t shift = 0;

  int64_t step_tokens() const { return seq_len * global_batch_size; }
};

// ---- of all legs of a run, in their order. REQUIRES: there is at least one.
// Returns the leg of a step, counted from 1; of a step after the last: the last leg.
const Leg& leg_at(std::span<const Leg>, int64_t step);
// Returns the samples, and tokens, of the steps up to `step`.
int64_t samples_until(std::span<const Leg>, int64_t step);
int64_t tokens_until(std::span<const Leg>, int64_t step);

}  // namespace trireme::train
