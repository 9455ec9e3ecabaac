// SPDX-License-Identifier: Apache-2.0
// SkipLog: counts the steps that the norm guard skipped, and reports where several skipped steps in
// a row began and ended. It receives reports of logged steps only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace trireme::train {

class SkipLog {
 public:
  // `norm_multiple`: training.skip_norm_multiple, for messages.
  explicit SkipLog(double norm_multiple) : norm_multiple_(norm_multiple) {}

  // Takes the report of a logged step. Returns human-readable log lines: none, or one where a row
  // of skipped steps began, or ended, since the logged step before.
  std::vector<std::string> add(int64_t step, const engine::StepReport&);
  // Throws Diverged if so many steps in a row were skipped that the run will not recover by itself.
  void check(int64_t step, const engine::StepReport&) const;

  int64_t attempt_skipped() const { return skipped_ - first_skipped_; }  // in this attempt
  int64_t newly_skipped() const { return newly_skipped_; }  // since the logged step before

 private:
  void begin_attempt(const engine::StepReport&);
  std::string began_line(const engine::StepReport&) const;

  double norm_multiple_;
  int64_t first_skipped_ = -1;  // by earlier attempts; -1: not known yet
  int64_t skipped_ = 0, newly_skipped_ = 0;
  int64_t logged_row_ = 0;  // first step of the last row that was logged
  int64_t skipped_before_row_ = 0;
  bool is_row_open_ = false;
};

}  // namespace trireme::train
