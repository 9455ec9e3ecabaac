// SPDX-License-Identifier: Apache-2.0
// Samples the next token from logits: a pure function of logits, options and the number of the
// draw.
#pragma once

#include <cstdint>
#include <span>

namespace trireme::train {

struct SampleOptions {
  double temperature = 1;  // 0: the most likely token
  int64_t top_k = 0;       // only the k most likely; 0: all
  double top_p = 1;        // only the most likely that together have at least this probability
  uint64_t seed = 0;
};

// Throws ConfigError that names the option, its value and what is allowed.
void check(const SampleOptions&);

// Returns the sampled token. Among equal logits the lower token counts as the more likely one.
// REQUIRES: logits are not empty.
int32_t sample(std::span<const float> logits, const SampleOptions&, uint64_t draw);

}  // namespace trireme::train
