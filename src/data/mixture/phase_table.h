// SPDX-License-Identifier: Apache-2.0
// What a user writes about the phases of a run, and the table of exact boundaries that follows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

// A data set of the run. Its limits hold for the whole run; it leaves the mixture at the exact
// sample at which one of them is reached.
struct PhaseSource {
  std::string name;          // for messages; not empty, unique
  int64_t epoch_tokens = 0;  // samples() * seq_len of its sampler
  double max_epochs = 0;     // 0: unlimited
  int64_t max_tokens = 0;    // 0: unlimited

  // Returns the smaller limit in tokens, or 2^62.
  int64_t token_limit() const;
};

struct PhaseOptions {
  std::string name;  // for messages and logs
  // Where the phase begins: the step `from_step` (counted from 0), or the first step before which
  // the run has read at least `from_tokens` tokens. -1: not given. The first phase begins at 0 and
  // needs neither; every other phase has exactly one.
  int64_t from_step = -1, from_tokens = -1;
  std::vector<double> weights;  // by source; 0: not in this phase
  int64_t seq_len = 0;
  int64_t global_batch = 0;  // samples of a step
  // The learning rate is `learning_rate` if that is above 0, otherwise that of the run's schedule
  // times the factor.
  double learning_rate = 0, learning_rate_factor = 1;

  double learning_rate_of(double scheduled) const {
    return learning_rate > 0 ? learning_rate : scheduled * learning_rate_factor;
  }
};

struct RunPhases {
  std::vector<PhaseSource> sources;
  std::vector<PhaseOptions> phases;
  int64_t steps = 0;  // of the run
  uint64_t seed = 0;
};

// A phase with its boundaries. Every step belongs to one phase; boundaries count from the run's
// start.
struct Phase {
  PhaseOptions options;
  int64_t first_step = 0, first_sample = 0, first_token = 0;
  int64_t steps = 0, samples = 0;  // 0: the run ends before the phase
};

// Throws ConfigError that names phase or source, with numbers: options that are not legal, and
// phases that do not begin one after the other.
std::vector<Phase> phase_table(const RunPhases&);

}  // namespace trireme::data
