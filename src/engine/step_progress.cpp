// SPDX-License-Identifier: Apache-2.0
#include "engine/step_progress.h"

#include <utility>

#include "device/stream_number.h"

namespace trireme::engine {
namespace {

constexpr int64_t number_bytes = 64;  // a line of the cache

}  // namespace

StepProgress::StepProgress(device::Stream& compute)
    : compute_(compute), activity_(base::RankActivity::current()) {
  if (!device::can_set_numbers(compute)) return;
  memory_ = compute.device().make_host_buffer(device::Mem::comm, 2 * number_bytes, "step progress");
  pieces_.done = reinterpret_cast<int64_t*>(memory_->data());
  steps_.done = reinterpret_cast<int64_t*>(memory_->data() + number_bytes);
  activity_.set_work(*this);
}

StepProgress::~StepProgress() { activity_.remove_work(*this); }

void StepProgress::end_step() {
  add(steps_);
  add(pieces_);
}

void StepProgress::add(Number& number) {
  if (!memory_) return;
  if (compute_.is_capturing()) {
    device::add_in_order(compute_, number.done);
    ++number.captured;
    compute_.at_launch([&number] { ++number.queued; });
    return;
  }
  device::set_in_order(compute_, number.done, number.queued + 1);
  ++number.queued;
}

void StepProgress::launched() {
  for (Number* number : {&steps_, &pieces_}) number->queued += std::exchange(number->captured, 0);
}

void StepProgress::drop_captured() { steps_.captured = pieces_.captured = 0; }

base::QueuedWork::Count StepProgress::count() const {
  return {.queued = pieces_.queued,
          .done = device::read_number(pieces_.done),
          .steps = device::read_number(steps_.done)};
}

}  // namespace trireme::engine
