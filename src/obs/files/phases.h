// SPDX-License-Identifier: Apache-2.0
// Phases: every second of an attempt belongs to exactly one class. PhaseClock charges the time
// since the last change of class to the class that was current, so the classes sum to the wall
// time; no class is computed as a remainder. phases.jsonl has one object per span,
//   {"attempt":1,"begin":...,"end":...,"first_step":11,"last_step":20,"seconds":{"useful":1.9,...}}
// whose spans are contiguous within an attempt and whose seconds sum to end - begin.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "obs/clock.h"

namespace trireme::obs {

enum class Phase : uint8_t {
  startup,       // from the start of the process to the first step, without what follows
  restore,       // reading a checkpoint
  warmup,        // the first step: libraries choose algorithms, memory is touched
  useful,        // steps whose update is in the weights
  skipped,       // steps whose update was not applied
  repeated,      // steps that an earlier attempt had computed already
  data_wait,     // waiting for batches
  straggler,     // waiting for ranks that are slower than the median of their group
  exposed_save,  // steps wait for a checkpoint
  validation,
  exporting,  // weights in Hugging Face form
  sdc_check,
  detect,    // from a failure to its verdict
  abort,     // ending the processes of a failed attempt
  reform,    // starting them again
  degraded,  // fewer members than planned
  idle_spare,
  queue,         // between attempts: waiting for machines
  planned_stop,  // between attempts: stopped on request
  closing,       // after the last step: last checkpoint, summary
  unknown,
  count
};
std::string_view name_of(Phase);
std::optional<Phase> phase_from(std::string_view);

using PhaseSeconds = std::array<double, static_cast<size_t>(Phase::count)>;

// One thread uses it: the first rank's host thread.
class PhaseClock {
 public:
  // `since`: when the process started, by `clock`.
  PhaseClock(Phase phase, double since, Clock clock);
  // Charges the time since the last change to the current class.
  void change(Phase to);
  Phase current() const { return current_; }
  // Moves measured seconds from one class to another, at most those that `from` has.
  void move(Phase from, Phase to, double seconds);

  struct Span {
    double begin = 0, end = 0;
    PhaseSeconds seconds{};
  };
  // Returns the span since the last call (or the start), which ends now.
  Span take();

  // Is in another class during its lifetime.
  class Scope {
   public:
    Scope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.current()) {
      clock_.change(phase);
    }
    ~Scope() { clock_.change(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseClock& clock_;
    Phase before_;
  };

 private:
  Clock clock_;
  Phase current_;
  double begin_, changed_;
  PhaseSeconds seconds_{};
};

}  // namespace trireme::obs
