// SPDX-License-Identifier: Apache-2.0
#include "train/trace/stream_timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "train/trace/op_timeline.h"

namespace trireme::train {
namespace {

using device::StreamCall;

constexpr int32_t compute = 0;           // index of its stream
constexpr int64_t shortest_wait = 1000;  // nanoseconds: shorter ones are not kept

int64_t nanoseconds(double seconds) { return std::llround(1e9 * seconds); }

// The category by which viewers filter.
const char* category_of(spec::OpKind kind) {
  switch (kind) {
    case spec::OpKind::fill:
    case spec::OpKind::copy:
      return "memory";
    case spec::OpKind::adamw:
    case spec::OpKind::momentum:
    case spec::OpKind::normalize:
    case spec::OpKind::muon:
    case spec::OpKind::step_control:
    case spec::OpKind::gate:
    case spec::OpKind::sum_squares:
    case spec::OpKind::add_layers:
    case spec::OpKind::merge_sums:
    case spec::OpKind::merge_records:
      return "optimizer";
    default:
      return "compute";
  }
}

TraceSpan::Kind kind_of(StreamCall::Kind kind) {
  switch (kind) {
    case StreamCall::Kind::wait:
      return TraceSpan::Kind::wait;
    case StreamCall::Kind::copy:
      return TraceSpan::Kind::copy;
    case StreamCall::Kind::communication:
      break;
  }
  return TraceSpan::Kind::communication;
}

bool runs_inline(const device::Stream& stream) {
  return stream.host_calls() == device::Stream::HostCalls::immediate;
}

}  // namespace

StreamTimeline::StreamTimeline(std::vector<device::Stream*> streams, obs::Clock clock)
    : streams_(std::move(streams)), clock_(std::move(clock)) {
  TRIREME_CHECK(!streams_.empty(), "a timeline without streams");
}

StreamTimeline::~StreamTimeline() { stop(); }

std::vector<std::string> StreamTimeline::stream_names() const {
  std::vector<std::string> names;
  for (const device::Stream* each : streams_) names.push_back(each->name());
  return names;
}

void StreamTimeline::drain() {
  for (device::Stream* each : streams_) each->synchronize();
}

void StreamTimeline::start(int64_t step) {
  TRIREME_CHECK(!is_on_, "step {} is traced already", step_);
  drain();
  step_ = step;
  entries_.clear();
  open_op_.reset();
  open_calls_.clear();
  for (device::Stream* each : streams_) {
    TRIREME_CHECK(each->observer() == nullptr, "stream '{}' is observed already", each->name());
    each->set_observer(this);
    each->add_call_observer(*this);
  }
  is_on_ = true;
  set_origin();
}

// The stream is idle, so an event happens between two readings of the host's clock. The closest
// pair of a few is kept, because another process may run between the two.
void StreamTimeline::set_origin() {
  device::Stream& first = *streams_.front();
  double error = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const double before = clock_();
    const device::Event event = first.record_timed();
    first.synchronize();
    const double after = clock_();
    if (attempt > 0 && (after - before) / 2 >= error) continue;
    error = (after - before) / 2;
    origin_ = event;
    origin_seconds_ = (before + after) / 2;
  }
  clock_error_seconds_ = std::max(clock_error_seconds_, error);
  begin_seconds_ = clock_();
}

void StreamTimeline::stop() {
  if (!std::exchange(is_on_, false)) return;
  for (device::Stream* each : streams_) {
    each->set_observer(nullptr);
    each->remove_call_observer(*this);
  }
}

void StreamTimeline::op(const device::Stream& on, const spec::OpCost& cost) {
  Entry& entry = add(index_of(on));
  TraceSpan& span = entry.span;
  span.name = strings_.add(op_name(cost));
  span.category = strings_.add(category_of(cost.kind));
  span.shape = strings_.add(
      fmt::format("{} x {} x {} {}", cost.m, cost.n, cost.k, base::name_of(cost.dtype)));
  span.flops = cost.flops;
  span.bytes = cost.bytes;
  name(span, on);
  open_op_ = entries_.size() - 1;
}

void StreamTimeline::begins(device::Stream& on, const StreamCall& call) {
  // Copies and waits inside of a call belong to it.
  if (!open_calls_.empty() && call.kind != StreamCall::Kind::communication) return;
  TraceSpan& span = add(index_of(on)).span;
  span.kind = kind_of(call.kind);
  span.bytes = call.bytes;
  name(span, on);
  switch (call.kind) {
    case StreamCall::Kind::wait:
      span.name = strings_.add(call.of.empty() ? "wait" : fmt::format("wait for {}", call.of));
      span.category = strings_.add("wait");
      break;
    case StreamCall::Kind::copy:
      span.name = strings_.add(std::string(call.op));
      span.category = strings_.add("memory");
      break;
    case StreamCall::Kind::communication:
      span.name = strings_.add(std::string(call.op));
      span.category = strings_.add("communication");
      span.group = strings_.add(std::string(call.of));
      span.ranks = strings_.add(fmt::format("{}", fmt::join(call.ranks, ",")));
      span.peer = call.peer;
      span.sequence = call.sequence;
      break;
  }
  open_calls_.push_back(entries_.size() - 1);
}

void StreamTimeline::ends(device::Stream& on, const StreamCall& call) {
  if (open_calls_.empty()) return;
  const size_t at = open_calls_.back();
  if (entries_[at].span.kind != kind_of(call.kind)) return;  // inside of another call
  open_calls_.pop_back();
  if (open_op_ && entries_[*open_op_].span.stream != entries_[at].span.stream) end_open_op(nullptr);
  const device::Event end = on.record_timed();
  end_open_op(&end);
  entries_[at].end = end;
  entries_[at].span.queue_end_ns = now_ns();
  const bool held_compute = call.kind == StreamCall::Kind::communication &&
                            entries_[at].span.stream != compute && runs_inline(on) &&
                            runs_inline(*streams_.front());
  if (!held_compute) return;
  Entry held = entries_[at];
  held.span.kind = TraceSpan::Kind::wait;
  held.span.stream = compute;
  held.span.depth = 0;
  held.span.is_queued = false;
  held.span.name = strings_.add(fmt::format("wait for {}", on.name()));
  held.span.category = strings_.add("wait");
  entries_.push_back(std::move(held));
}

StreamTimeline::Entry& StreamTimeline::add(int32_t on) {
  const int64_t now = now_ns();
  // An op on another stream ends before this entry begins: with streams that run inline, compute
  // may wait for it.
  if (open_op_ && entries_[*open_op_].span.stream != on) end_open_op(nullptr);
  const device::Event begin = streams_[static_cast<size_t>(on)]->record_timed();
  end_open_op(&begin);
  Entry& entry = entries_.emplace_back();
  entry.begin = begin;
  entry.span.stream = on;
  entry.span.step = step_;
  entry.span.queue_begin_ns = now;
  entry.span.host_depth = static_cast<uint8_t>(open_calls_.size());
  entry.span.depth = static_cast<uint8_t>(
      std::ranges::count_if(open_calls_, [&](size_t i) { return entries_[i].span.stream == on; }));
  return entry;
}

void StreamTimeline::end_open_op(const device::Event* at) {
  if (!open_op_) return;
  Entry& open = entries_[*open_op_];
  open_op_.reset();
  open.end = at != nullptr ? *at : stream(open.span).record_timed();
  open.span.queue_end_ns = now_ns();
}

void StreamTimeline::finish() {
  TRIREME_CHECK(is_on_, "finish() without start()");
  end_open_op(nullptr);
  stop();
  drain();
  const size_t first = spans_.size();
  const device::Stream& any = *streams_.front();
  const int64_t origin = nanoseconds(origin_seconds_);
  const auto at = [&](const device::Event& event) {
    return origin + nanoseconds(any.seconds_between(origin_, event));
  };
  for (int32_t index = 0; index < static_cast<int32_t>(streams_.size()); ++index) {
    for (Entry& entry : entries_) {
      if (entry.span.stream != index) continue;
      TraceSpan span = entry.span;
      span.begin_ns = at(entry.begin);
      span.end_ns = std::max(span.begin_ns, at(entry.end));
      const bool is_short_wait =
          span.kind == TraceSpan::Kind::wait && span.end_ns - span.begin_ns < shortest_wait;
      if (!is_short_wait) spans_.push_back(span);
    }
  }
  entries_.clear();
  steps_.push_back({step_, nanoseconds(begin_seconds_), now_ns()});
  host_waits_ += count_host_waits(first);
}

int StreamTimeline::count_host_waits(size_t first_span) const {
  if (runs_inline(*streams_.front())) return 0;  // the host is the device
  std::vector<TimedOp> ops;
  const auto seconds = [&](int64_t ns) { return 1e-9 * static_cast<double>(ns) - origin_seconds_; };
  for (size_t i = first_span; i < spans_.size(); ++i) {
    const TraceSpan& span = spans_[i];
    if (span.stream != compute || span.depth > 0 || !span.is_queued) continue;
    TimedOp one{.cost = {},
                .ranges = {},
                .begin = seconds(span.begin_ns),
                .end = seconds(span.end_ns),
                .queue_begin = seconds(span.queue_begin_ns),
                .queue_end = seconds(span.queue_end_ns)};
    if (!ops.empty()) {
      ops.back().end = one.begin;
      ops.back().queue_end = one.queue_begin;
    }
    ops.push_back(std::move(one));
  }
  return train::host_waits(ops);
}

int32_t StreamTimeline::index_of(const device::Stream& on) const {
  const auto found = std::ranges::find(streams_, &on);
  TRIREME_CHECK(found != streams_.end(), "stream '{}' is not in this timeline", on.name());
  return static_cast<int32_t>(found - streams_.begin());
}

int64_t StreamTimeline::now_ns() const { return nanoseconds(clock_()); }

// Ranges of compute are "step", the action, the layer and parts of it; those of other streams, if
// they have any, are a verb and the layer: "gather blocks.3".
void StreamTimeline::name(TraceSpan& span, const device::Stream& on) {
  const std::vector<std::string>& outer = streams_.front()->ranges();
  if (outer.size() > 1) span.action = strings_.add(outer[1]);
  if (&on != streams_.front() && !on.ranges().empty()) {
    const std::string& last = on.ranges().back();
    span.place = strings_.add(last);
    span.layer = strings_.add(last.substr(last.find(' ') + 1));
    return;
  }
  if (outer.size() < 3) return;
  span.layer = strings_.add(outer[2]);
  span.place = strings_.add(fmt::format("{}", fmt::join(outer.begin() + 2, outer.end(), "/")));
}

}  // namespace trireme::train
