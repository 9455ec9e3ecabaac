// SPDX-License-Identifier: Apache-2.0
// Onset: since when a run that has diverged is wrong. A divergence is seen late (divergence.h); its
// onset is the first step at which a signal left its range and did not return.
//
// The range of a signal at a step is computed from earlier steps only:
//   - loss: up to the lowest median of 32 steps, and 6 standard deviations of noise (at least 2 %);
//   - norm: up to 10 times the median of the last 128 norms that were in range;
//   - skipped: no step is skipped.
// Whether it has returned is judged by the median of 9 steps, so that single steps on either side
// of the limit do not count. A spike that recovered is none. The 8-bit numbers of a block left
// their range with an alarm, unless the block fell back to bf16.
//
// A step computes with the weights of the step before it: checkpoints are suspect from that one on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "analysis/run_record.h"

namespace trireme::analysis {

struct Onset {
  int64_t step = 0;
  std::string text;  // "the loss left its range at step 412 (3.91, the range ended at 3.24)"

  // The first step whose checkpoint is not to be trusted. What the run began with is.
  int64_t first_bad_state() const { return std::max<int64_t>(1, step - 1); }
};

enum class Signal : uint8_t { loss, norm, skipped };

// Returns where the values left their range for good; none: they ended in it. `steps` ascend.
std::optional<Onset> left_range(Signal, std::span<const int64_t> steps,
                                std::span<const double> values);

// Returns the earliest onset of all signals of the run, up to the last step of its last attempt;
// none: no signal is out of range.
std::optional<Onset> find_onset(const RunRecord&);

// The same for a run that has diverged, which no signal may show: then it is dated by the rule that
// found the divergence, or by the first step of the attempt.
Onset onset_of_divergence(const RunRecord&);

}  // namespace trireme::analysis
