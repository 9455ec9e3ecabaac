// SPDX-License-Identifier: Apache-2.0
#include "train/trace/op_timeline.h"

#include <utility>

#include "base/check.h"

namespace trireme::train {

OpTimeline::~OpTimeline() {
  if (stream_.observer() == this) stream_.set_observer(nullptr);
}

void OpTimeline::start() {
  TRIREME_CHECK(stream_.observer() == nullptr, "stream '{}' is observed already", stream_.name());
  stream_.synchronize();
  sent_.clear();
  stream_.set_observer(this);
  started_at_ = clock_();
  origin_ = stream_.record_timed();  // the stream is idle: the event completes now
}

void OpTimeline::op(const device::Stream& stream, const spec::OpCost& cost) {
  if (&stream != &stream_) return;
  Sent& sent = sent_.emplace_back(Sent{cost, stream.ranges(), {}, clock_() - started_at_});
  sent.begin = stream_.record_timed();
}

std::vector<TimedOp> OpTimeline::finish() {
  TRIREME_CHECK(stream_.observer() == this, "finish() without start()");
  const device::Event end = stream_.record_timed();
  const double queue_end = clock_() - started_at_;
  stream_.set_observer(nullptr);
  stream_.synchronize();
  finished_at_ = clock_();
  std::vector<TimedOp> ops;
  for (size_t i = 0; i < sent_.size(); ++i) {
    const bool is_last = i + 1 == sent_.size();
    TimedOp& op = ops.emplace_back();
    op.cost = sent_[i].cost;
    op.ranges = std::move(sent_[i].ranges);
    op.begin = stream_.seconds_between(origin_, sent_[i].begin);
    op.end = stream_.seconds_between(origin_, is_last ? end : sent_[i + 1].begin);
    op.queue_begin = sent_[i].queued;
    op.queue_end = is_last ? queue_end : sent_[i + 1].queued;
  }
  sent_.clear();
  return ops;
}

std::string op_name(const spec::OpCost& cost) {
  std::string name(spec::name_of(cost.kind));
  switch (cost.layout) {
    case spec::GemmLayout::nn:
      return name + " nn";
    case spec::GemmLayout::nt:
      return name + " nt";
    case spec::GemmLayout::tn:
      return name + " tn";
    case spec::GemmLayout::tt:
      return name + " tt";
    case spec::GemmLayout::none:
      break;
  }
  return name;
}

int host_waits(const std::vector<TimedOp>& ops) {
  constexpr double slack = 50e-6;  // seconds: by which the two clocks may differ
  int waits = 0;
  for (const TimedOp& op : ops) {
    const bool device_was_behind = op.begin > op.queue_begin + 2 * slack;
    const bool device_caught_up = op.queue_end > op.end - slack;
    waits += device_was_behind && device_caught_up && &op != &ops.back() ? 1 : 0;
  }
  return waits;
}

}  // namespace trireme::train
