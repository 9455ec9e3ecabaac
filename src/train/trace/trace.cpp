// SPDX-License-Identifier: Apache-2.0
#include "train/trace/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"

namespace trireme::train {
namespace {

constexpr int stream_track = 1, host_track = 2;
constexpr size_t large = 1 << 16;  // bytes of text that are written together

std::string quoted(const std::string& text) {
  return base::Json(text).dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

// A slice ends this much before the next one of its track may begin. Otherwise readers that add ts
// and dur as floating-point numbers (speedscope does) compute an end after the next begin, and nest
// the two. A nested slice ends earlier by the same amount.
constexpr int64_t gap_ns = 1;

int64_t nanoseconds(double seconds) { return std::llround(1e9 * seconds); }

// Returns an event without its closing brace. Times of the format are microseconds, here with all
// digits of a nanosecond. `depth` is the number of enclosing slices.
std::string span(const std::string& name, const char* category, int track, int depth,
                 int64_t begin_ns, int64_t end_ns) {
  const int64_t shown_ns = std::max<int64_t>(0, end_ns - begin_ns - (1 + depth) * gap_ns);
  return fmt::format(
      R"({{"name":{},"cat":"{}","ph":"X","pid":0,"tid":{},"ts":{}.{:03},"dur":{}.{:03})",
      quoted(name), category, track, begin_ns / 1000, begin_ns % 1000, shown_ns / 1000,
      shown_ns % 1000);
}

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
    case spec::OpKind::sum_squares:
    case spec::OpKind::add_layers:
    case spec::OpKind::merge_sums:
    case spec::OpKind::merge_records:
      return "optimizer";
    default:
      return "compute";
  }
}

std::string track_name(int track, const std::string& name) {
  return fmt::format(R"({{"name":"thread_name","ph":"M","pid":0,"tid":{},"args":{{"name":{}}}}})",
                     track, quoted(name));
}

// Returns "blocks.3/attention" for {"step", "F0", "blocks.3", "attention"}.
std::string layer_of(const std::vector<std::string>& ranges) {
  std::string text;
  for (size_t i = 2; i < ranges.size(); ++i) text += (text.empty() ? "" : "/") + ranges[i];
  return text;
}

std::string device_event(const TimedOp& op, int64_t begin_ns, int64_t end_ns) {
  const spec::OpCost& cost = op.cost;
  const std::string action = op.ranges.size() > 1 ? op.ranges[1] : "";
  const std::string shape =
      fmt::format("{} x {} x {} {}", cost.m, cost.n, cost.k, base::name_of(cost.dtype));
  return span(op_name(cost), category_of(cost.kind), stream_track, 1, begin_ns, end_ns) +
         fmt::format(R"(,"args":{{"layer":{},"action":{},"shape":{},"flops":{},"bytes":{}}}}})",
                     quoted(layer_of(op.ranges)), quoted(action), quoted(shape),
                     static_cast<int64_t>(cost.flops), cost.bytes);
}

}  // namespace

TraceSteps trace_steps_from(const std::string& text, int64_t steps) {
  TraceSteps found;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, found.first);
  const bool has_colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  const auto last =
      has_colon ? std::from_chars(first.ptr + 1, end, found.last) : std::from_chars_result{};
  if (!has_colon || last.ec != std::errc() || last.ptr != end || found.first < 1 ||
      found.last < found.first || found.last > steps) {
    throw base::ConfigError(fmt::format(
        "--trace-steps {}: must be first:last, such as 3:5, with steps from 1 to {}", text, steps));
  }
  return found;
}

Trace::Trace(std::filesystem::path file, device::Stream& stream)
    : file_(std::move(file), obs::OutputFile::Mode::replace),
      stream_name_(stream.name()),
      timeline_(stream) {
  text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  add(R"({"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}})");
  add(track_name(stream_track, "stream " + stream_name_));
  add(track_name(host_track, "host"));
}

void Trace::begin_step(int64_t step) {
  step_ = step;
  timeline_.start();
  if (first_step_ == 0) {
    first_step_ = step;
    begin_seconds_ = timeline_.started_at();
  }
}

void Trace::end_step() {
  const std::vector<TimedOp> ops = timeline_.finish();
  if (ops.empty()) return;
  const double offset = timeline_.started_at() - begin_seconds_;
  // Steps on a track must not overlap, although the device's clock may differ from the host's.
  const auto on_stream = [&](double at) {
    return std::max(stream_end_ns_, nanoseconds(offset + at));
  };
  const auto on_host = [&](double at) { return std::max(host_end_ns_, nanoseconds(offset + at)); };
  const std::string name = fmt::format("step {}", step_);
  const int64_t stream_end = on_stream(ops.back().end), host_end = on_host(ops.back().queue_end);
  add(span(name, "step", stream_track, 0, on_stream(ops.front().begin), stream_end) + "}");
  add(span(name, "step", host_track, 0, on_host(ops.front().queue_begin), host_end) + "}");
  for (const TimedOp& op : ops) {
    add(device_event(op, on_stream(op.begin), on_stream(op.end)));
    add(span("queue " + op_name(op.cost), "host", host_track, 1, on_host(op.queue_begin),
             on_host(op.queue_end)) +
        "}");
    write_if_large();
  }
  stream_end_ns_ = stream_end;
  host_end_ns_ = std::max(host_end, nanoseconds(timeline_.finished_at() - begin_seconds_));
  add(span("wait after the step", "host", host_track, 0, host_end, host_end_ns_) + "}");
  waits_ += host_waits(ops);
}

void Trace::finish() {
  text_ += fmt::format(
      "\n],\"otherData\":{{\"first_step\":{},\"last_step\":{},\"host_waits_inside_steps\":{},"
      "\"captured\":false,\"clock\":\"device times are since an event on the idle stream at the "
      "start of each step\"}}}}\n",
      first_step_, step_, waits_);
  file_.write(text_);
  text_.clear();
  file_.sync();
}

void Trace::add(const std::string& event) {
  text_ += (is_first_ ? "" : ",\n") + event;
  is_first_ = false;
}

void Trace::write_if_large() {
  if (text_.size() < large) return;
  file_.write(text_);
  text_.clear();
}

}  // namespace trireme::train
