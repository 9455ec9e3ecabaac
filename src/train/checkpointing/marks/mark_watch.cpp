// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/marks/mark_watch.h"

#include <fmt/format.h>

#include <utility>

namespace trireme::train {

void MarkWatch::begin(int64_t step, std::vector<ckpt::GenerationId> unmarked) {
  step_ = step;
  unmarked_ = std::move(unmarked);
  alarm_step_ = -1;
}

std::vector<ckpt::MarkLine> MarkWatch::add(const ckpt::GenerationId& id) {
  unmarked_.push_back(id);
  return judge();
}

std::vector<ckpt::MarkLine> MarkWatch::end_step(int64_t step,
                                                const std::optional<StepAlarm>& alarm) {
  step_ = step;
  if (alarm) {
    alarm_step_ = step;
    alarm_ = *alarm;
  }
  return judge();
}

std::vector<ckpt::MarkLine> MarkWatch::judge() {
  std::vector<ckpt::MarkLine> marks;
  std::erase_if(unmarked_, [&](const ckpt::GenerationId& id) {
    if (alarm_step_ >= id.step) {
      marks.push_back({.of = id,
                       .mark = ckpt::Mark::suspect,
                       .detector = alarm_.detector,
                       .evidence = fmt::format("step {}: {}", alarm_step_, alarm_.text)});
      return true;
    }
    if (step_ - id.step < good_after_) return false;
    marks.push_back({.of = id,
                     .mark = ckpt::Mark::good,
                     .detector = ckpt::steps_detector,
                     .evidence = fmt::format("{} later steps without an alarm", good_after_)});
    return true;
  });
  return marks;
}

}  // namespace trireme::train
