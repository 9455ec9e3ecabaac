// SPDX-License-Identifier: Apache-2.0
// RunNumerics: the part of a run that watches 8-bit numbers: which steps are sampled and measured,
// what is recorded of them, and which blocks fall back to bf16 or return. A run without blocks in 8
// bits does nothing here.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text/json.h"
#include "train/numerics/numerics_watch.h"
#include "train/report/run_output.h"
#include "train/run/incarnation.h"

namespace trireme::train {

class RunNumerics {
 public:
  // All references must outlive it. `log` writes a human-readable line on the first rank.
  RunNumerics(Incarnation& parts, std::function<void(const std::string&)> log);

  // Does the recipe of the run have blocks in 8 bits, now or after a return?
  bool is_on() const { return !layers_.empty(); }
  // Continues the watch of the checkpoint of `step` (state(); null: it has none). Blocks that had
  // fallen back return if precision.bf16_blocks has changed since. Throws base::Json::exception if
  // it is no such state.
  void restore(const base::Json& state, int64_t step);
  // Continues the watch of a rank that has seen the samples until `step`, after which the ranks of
  // a new epoch have the state in memory. Without such a rank it begins again, with the blocks that
  // are in bf16. Collective.
  void continue_after(int64_t step);
  // A copy of the state after the last step is made, from which an epoch may continue.
  void copied(int64_t step);
  // Returns the blocks that are to be in bf16, besides the first and last ones.
  std::vector<int> blocks() const;
  // Returns those of a run that is resumed from a checkpoint with this state.
  static std::vector<int> blocks_after(const base::Json& state, const config::Config&);
  // Returns the error of a checkpoint whose state restore() or blocks_after() cannot read.
  static base::ConfigError unreadable(int64_t step, const base::Json::exception&);
  void begin(RunOutput& output) const;  // on the first rank

  // Before a step is queued.
  void before_step(int64_t step);
  // Samples the last step, if it is due. Returns the blocks that are to be in bf16 from the next
  // step on, if they change. The caller then calls changed(). Waits for the device and is
  // collective where it is due, which all ranks know.
  bool is_due(int64_t step) const;
  std::optional<std::vector<int>> after_step(int64_t step, RunOutput* output);
  // The engine was rebuilt with the blocks that after_step() returned or, if there is a problem
  // because they do not fit into memory, with those before.
  void changed(int64_t step, const std::string& problem);

  // What checkpoints save; null if there is nothing to save.
  base::Json state() const;

 private:
  // The watch after a step.
  struct Point {
    int64_t step;
    NumericsWatch watch;
  };
  const Point* newest_until(int64_t step) const;  // null: there is none
  void report(const DriftFinding&);
  struct Change {
    const char* what;
    std::vector<int> blocks;
    obs::Severity severity = obs::Severity::info;
    std::string text;
  };
  void add_event(int64_t step, Change change);

  Incarnation& parts_;
  const std::function<void(const std::string&)> log_;
  const std::vector<int> layers_;       // that are in 8 bits unless they have fallen back
  const std::vector<int> configured_;   // blocks in bf16 by configuration, besides first and last
  NumericsWatch watch_;                 // the same on all ranks
  std::deque<Point> sampled_, copied_;  // the last ones
  NumericsWatch::Decision pending_;     // until changed()
  bool is_measured_ = false;            // the step that was queued last
};

}  // namespace trireme::train
