// SPDX-License-Identifier: Apache-2.0
// MarkWatch: which checkpoints of a run become good or suspect while it trains. A checkpoint is
// good once so many later steps have passed without an alarm, and suspect if one came before that.
// Pure: it receives steps, alarms and checkpoints, and returns marks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckpt/marks/marks.h"
#include "train/record/step_alarm.h"

namespace trireme::train {

class MarkWatch {
 public:
  explicit MarkWatch(int64_t good_after) : good_after_(good_after) {}

  // The run continues after `step`, with these checkpoints that have no mark yet.
  void begin(int64_t step, std::vector<ckpt::GenerationId> unmarked);
  // A checkpoint is durable; its step has ended already.
  std::vector<ckpt::MarkLine> add(const ckpt::GenerationId&);
  // A step has ended; steps ascend.
  std::vector<ckpt::MarkLine> end_step(int64_t step, const std::optional<StepAlarm>& alarm);

 private:
  // Returns the marks of checkpoints that can be judged, and forgets these.
  std::vector<ckpt::MarkLine> judge();

  const int64_t good_after_;
  int64_t step_ = 0;  // the last that has ended
  std::vector<ckpt::GenerationId> unmarked_;
  int64_t alarm_step_ = -1;  // of the last alarm; -1: there was none
  StepAlarm alarm_;
};

}  // namespace trireme::train
