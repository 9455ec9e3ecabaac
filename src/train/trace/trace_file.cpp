// SPDX-License-Identifier: Apache-2.0
#include "train/trace/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text/json.h"
#include "train/trace/clock_alignment.h"
#include "train/trace/trace_tracks.h"

namespace trireme::train {
namespace {

constexpr size_t large = 1 << 16;  // bytes of text that are written together

std::string quoted(const std::string& text) {
  return base::Json(text).dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

// Times of the format are microseconds, here with all digits of a nanosecond.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

// A place to which a flow can be bound.
struct Bound {
  int rank = 0, track = 0;
  int64_t ns = 0;
};
// The two ends of a message.
struct Message {
  std::optional<Bound> send, receive;
};

class Writer {
 public:
  Writer(obs::OutputFile& file, const std::vector<RankTrace>& traces)
      : file_(file), traces_(traces) {}
  void write();

 private:
  void add(const std::string& event);  // one object of the list
  void add_names(const RankTrace&);
  void add_rank(const RankTrace&, const std::vector<Track>&);
  void add_slice(const RankTrace&, const Track&, const Slice&);
  void add_queue_flows(const RankTrace&, const std::vector<Track>&);
  void note_message(const RankTrace&, const Track&, const Slice&);
  void add_flow(std::string_view kind, const Bound& from, const Bound& to);
  void add_other_data(const std::vector<ClockOffset>&);
  void flush();

  obs::OutputFile& file_;
  const std::vector<RankTrace>& traces_;
  std::string text_;  // not yet written
  bool is_first_ = true;
  int64_t flows_ = 0;
  // By group, its ranks, sender and sequence.
  std::map<std::tuple<std::string, std::string, int, int64_t>, Message> messages_;
};

void Writer::write() {
  text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const std::vector<ClockOffset> offsets =
      traces_.empty() ? std::vector<ClockOffset>{} : align_clocks(traces_);
  int64_t origin = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < traces_.size(); ++i) {
    for (const TracedStep& step : traces_[i].steps) {
      origin = std::min(origin, step.begin_ns + offsets[i].offset_ns);
    }
  }
  for (size_t i = 0; i < traces_.size(); ++i) {
    add_names(traces_[i]);
    add_rank(traces_[i], tracks_of(traces_[i], offsets[i], origin));
  }
  for (const auto& [key, message] : messages_) {
    if (message.send && message.receive) add_flow("message", *message.send, *message.receive);
  }
  text_ += "\n],\"otherData\":";
  add_other_data(offsets);
  text_ += "}\n";
  flush();
  file_.sync();
}

void Writer::add_names(const RankTrace& trace) {
  const auto meta = [&](const char* what, const std::string& args) {
    add(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"args":{{{}}}}})", what, trace.rank, args));
  };
  meta("process_name", "\"name\":" + quoted(trace.name));
  meta("process_labels", "\"labels\":" + quoted(trace.host));
  meta("process_sort_index", fmt::format("\"sort_index\":{}", trace.rank));
}

void Writer::add_rank(const RankTrace& trace, const std::vector<Track>& tracks) {
  for (const Track& track : tracks) {
    add(fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
                    track.rank, track.number, quoted(track.name)));
    for (const Slice& slice : track.slices) {
      add_slice(trace, track, slice);
      note_message(trace, track, slice);
    }
  }
  add_queue_flows(trace, tracks);
}

void Writer::add_slice(const RankTrace& trace, const Track& track, const Slice& slice) {
  const TraceSpan* span = slice.span < 0 ? nullptr : &trace.spans[static_cast<size_t>(slice.span)];
  const std::string category =
      slice.category[0] != '\0' ? std::string(slice.category) : trace.text(span->category);
  std::string event =
      fmt::format(R"({{"name":{},"cat":"{}","ph":"X","pid":{},"tid":{},"ts":{},"dur":{})",
                  quoted(slice.name), category, track.rank, track.number,
                  microseconds(slice.begin_ns), microseconds(slice.end_ns - slice.begin_ns));
  if (span == nullptr || track.number == host_track) {
    add(event + "}");
    return;
  }
  event += fmt::format(R"(,"args":{{"layer":{},"action":{})", quoted(trace.text(span->place)),
                       quoted(trace.text(span->action)));
  switch (span->kind) {
    case TraceSpan::Kind::op:
      event += fmt::format(R"(,"shape":{},"flops":{},"bytes":{})", quoted(trace.text(span->shape)),
                           static_cast<int64_t>(span->flops), span->bytes);
      break;
    case TraceSpan::Kind::copy:
      event += fmt::format(R"(,"bytes":{})", span->bytes);
      break;
    case TraceSpan::Kind::communication:
      event += fmt::format(R"(,"op":{},"group":{},"ranks":{},"sequence":{},"bytes":{})",
                           quoted(trace.text(span->name)), quoted(trace.text(span->group)),
                           quoted(trace.text(span->ranks)), span->sequence, span->bytes);
      if (span->peer >= 0) event += fmt::format(R"(,"peer":{})", span->peer);
      break;
    case TraceSpan::Kind::wait:
      break;
  }
  add(event + "}}");
}

void Writer::note_message(const RankTrace& trace, const Track& track, const Slice& slice) {
  if (slice.span < 0 || track.number == host_track) return;
  const TraceSpan& span = trace.spans[static_cast<size_t>(slice.span)];
  if (span.kind != TraceSpan::Kind::communication) return;
  const std::string& op = trace.text(span.name);
  if (op != "send" && op != "recv") return;
  const int sender = op == "send" ? trace.rank : span.peer;
  Message& message =
      messages_[{trace.text(span.group), trace.text(span.ranks), sender, span.sequence}];
  if (op == "send") {
    message.send = Bound{track.rank, track.number, slice.begin_ns};
  } else {
    // The message has arrived at the end; a flow is bound to the slice around its time.
    message.receive = Bound{track.rank, track.number, std::max(slice.begin_ns, slice.end_ns - 1)};
  }
}

// Flows for all ops would make half of the file.
void Writer::add_queue_flows(const RankTrace& trace, const std::vector<Track>& tracks) {
  std::map<int64_t, int64_t> queued;  // by span
  for (const Track& track : tracks) {
    if (track.number != host_track) continue;
    for (const Slice& slice : track.slices) {
      if (slice.span >= 0) queued[slice.span] = slice.begin_ns;
    }
  }
  using Key = std::pair<int32_t, int32_t>;  // layer, action
  for (const Track& track : tracks) {
    if (track.number == host_track) continue;
    Key last{-1, -1};
    for (const Slice& slice : track.slices) {
      if (slice.span < 0) continue;
      const TraceSpan& span = trace.spans[static_cast<size_t>(slice.span)];
      const bool is_call = span.kind == TraceSpan::Kind::communication;
      const bool is_op = span.kind == TraceSpan::Kind::op && span.depth == 0;
      const bool is_first_op =
          is_op && std::exchange(last, {span.layer, span.action}) != Key{span.layer, span.action};
      if (!is_call && !is_first_op) continue;
      const auto from = queued.find(slice.span);
      if (from == queued.end()) continue;
      const int64_t to = std::clamp(from->second, slice.begin_ns, slice.end_ns);
      add_flow("queue", {track.rank, host_track, from->second}, {track.rank, track.number, to});
    }
  }
}

void Writer::add_flow(std::string_view kind, const Bound& from, const Bound& to) {
  const int64_t id = ++flows_;
  const auto end = [&](const char* phase, const Bound& at) {
    add(fmt::format(R"({{"name":"{}","cat":"{}",{},"id":{},"pid":{},"tid":{},"ts":{}}})", kind,
                    kind, phase, id, at.rank, at.track, microseconds(at.ns)));
  };
  end(R"("ph":"s")", from);
  end(R"("ph":"f","bp":"e")", to);
}

void Writer::add_other_data(const std::vector<ClockOffset>& offsets) {
  base::Json clocks = base::Json::array();
  int waits = 0;
  for (size_t i = 0; i < traces_.size(); ++i) {
    const ClockOffset& offset = offsets[i];
    base::Json error = nullptr;
    if (offset.error_ns) error = 1e-3 * static_cast<double>(*offset.error_ns);
    clocks.push_back({{"rank", traces_[i].rank},
                      {"host", traces_[i].host},
                      {"method", offset.method},
                      {"error_us", error}});
    waits += traces_[i].host_waits;
  }
  const bool is_empty = traces_.empty() || traces_.front().steps.empty();
  const base::Json data = {
      {"first_step", is_empty ? 0 : traces_.front().steps.front().step},
      {"last_step", is_empty ? 0 : traces_.front().steps.back().step},
      {"ranks", traces_.size()},
      {"host_waits_inside_steps", waits},
      {"captured", false},
      {"clock",
       "times are of the first rank's host clock; device times are since an event on the idle "
       "compute stream at the start of each step; other machines are aligned on the ends of shared "
       "collectives, to the error that is stated"},
      {"clocks", clocks}};
  text_ += data.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

void Writer::add(const std::string& event) {
  text_ += (is_first_ ? "" : ",\n") + event;
  is_first_ = false;
  if (text_.size() >= large) flush();
}

void Writer::flush() {
  file_.write(text_);
  text_.clear();
}

}  // namespace

void write_trace(obs::OutputFile& file, const std::vector<RankTrace>& traces) {
  Writer(file, traces).write();
}

}  // namespace trireme::train
