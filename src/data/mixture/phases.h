// SPDX-License-Identifier: Apache-2.0
// The phases of a run: from which step on it reads which mixture, with which sequence length,
// global batch and learning rate. Sources continue from phase to phase at the token where they
// were.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/text/json_fwd.h"
#include "data/mixture/mixture_order.h"
#include "data/mixture/phase_table.h"

namespace trireme::data {

// The phase of a step or sample, and the position in it.
struct PhasePosition {
  int phase = 0;
  int64_t step = 0;    // of the phase
  int64_t sample = 0;  // of the phase; of a step: its first
};

// Positions of samples count through the run, from 0. Step s of a phase p takes the samples from
// p.first_sample + (s - p.first_step) * global_batch on. Any thread may call.
class Phases {
 public:
  // Throws ConfigError as phase_table(), and if all sources of a phase are exhausted before its
  // end.
  explicit Phases(RunPhases run);

  const RunPhases& run() const { return run_; }
  const std::vector<Phase>& table() const { return table_; }
  int64_t samples() const { return samples_; }  // of the run
  // Returns, by source, the sample with which it continues in a phase, in units of the phase's
  // seq_len. If seq_len grew, it is rounded up to a whole sample. REQUIRES: the phase has steps.
  const std::vector<int64_t>& first_source_samples(int phase) const {
    return first_source_samples_.at(static_cast<size_t>(phase));
  }

  // REQUIRES: 0 <= step < steps of the run.
  PhasePosition at_step(int64_t step) const;
  // REQUIRES: 0 <= sample < samples().
  PhasePosition at_sample(int64_t sample) const;
  // Returns the source of a sample of the run, and the sample of the source in its own order (its
  // epochs one after the other). REQUIRES: 0 <= sample < samples().
  SampleOrigin origin(int64_t sample) const;
  // Returns the order of a phase; its segments list where sources leave the mixture. REQUIRES: the
  // phase has steps.
  const MixtureOrder& mixture(int phase) const { return *mixtures_.at(static_cast<size_t>(phase)); }

  // Returns everything that decides the source of every sample, for the identity of a run. A
  // resumed run may change what follows after its step: `steps` limits the answer to phases that
  // begin before that step.
  base::Json identity(int64_t steps) const;

 private:
  void add_mixture(const Phase&);

  RunPhases run_;
  std::vector<Phase> table_;
  int64_t samples_ = 0;
  // By phase, as far as phases have steps.
  std::vector<std::unique_ptr<MixtureOrder>> mixtures_;
  std::vector<std::vector<int64_t>> first_source_samples_;
};

}  // namespace trireme::data
