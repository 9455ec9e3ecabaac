// SPDX-License-Identifier: Apache-2.0
// Timeline: where a run is. It counts the run's steps, from which the samples and tokens consumed
// so far follow, and maps the engine's own counts to them: an engine counts the steps that it has
// run since it was built, and its state those that were applied or skipped.
#pragma once

#include <cstdint>
#include <span>

#include "train/batches/leg.h"

namespace trireme::train {

class Timeline {
 public:
  // Begins an attempt at the start of the run. The legs must outlive the timeline.
  explicit Timeline(std::span<const Leg> legs) : legs_(legs) {}
  // Begins an attempt after `step`, until which the run has consumed `samples` and trained on
  // `tokens`. Steps that the engine has run already do not belong to it.
  void begin_after(int64_t step, int64_t samples, int64_t tokens);
  // The engine's state counts so many steps as applied or skipped at the current step.
  void begin_counts(int64_t counted) { uncounted_steps_ = step_ - counted; }

  // ---- changes
  void advance();  // the engine has queued the next step
  // The engine was replaced by one with the same state.
  void engine_replaced() { engine_steps_ = earlier_steps_ = taken_signals_ = 0; }
  // Steps from `to` on are repeated, by another engine. REQUIRES: `to` was run in this attempt, or
  // is the next step.
  void go_back(int64_t to);

  // ---- the run
  int64_t step() const { return step_; }  // the last one; before the first: 0
  int64_t first_step() const { return first_step_; }
  int64_t attempt_steps() const { return step_ - first_step_ + 1; }
  // Consumed by the run, with its earlier attempts, until `step`.
  int64_t samples_at(int64_t step) const { return samples_until(legs_, step) + shift_; }
  int64_t tokens_at(int64_t step) const { return tokens_until(legs_, step) + more_tokens_; }
  int64_t attempt_tokens() const { return tokens_at(step_) - tokens_at(first_step_ - 1); }
  // Samples that the run has consumed beyond those that its legs have until now: the offset of
  // sample positions in all later steps (see TrainBatches).
  int64_t shift() const { return shift_; }

  // ---- the engine
  int64_t engine_steps() const { return engine_steps_ - earlier_steps_; }  // of this attempt
  // Returns the run's step that was the last one when the state counted so many steps.
  int64_t step_of_count(int64_t counted) const { return counted + uncounted_steps_; }
  // Returns the run's step of the engine's signals with this index, which counts its steps from 0.
  int64_t step_of_signal(int64_t index) const { return step_ + 1 - engine_steps_ + index; }
  void take_signal(int64_t index) { taken_signals_ = index + 1; }
  // Steps of this attempt whose signals were not taken yet.
  int64_t untaken_signals() const { return engine_steps_ - taken_signals_; }

 private:
  std::span<const Leg> legs_;
  int64_t step_ = 0, first_step_ = 1;
  int64_t shift_ = 0;            // of samples, from those of the legs
  int64_t more_tokens_ = 0;      // than those of the legs
  int64_t uncounted_steps_ = 0;  // of the run, that the engine's state does not count
  int64_t engine_steps_ = 0;     // that the engine has run
  int64_t earlier_steps_ = 0;    // of them, before the attempt began
  int64_t taken_signals_ = 0;    // of its steps
};

}  // namespace trireme::train
