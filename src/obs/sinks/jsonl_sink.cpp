// SPDX-License-Identifier: Apache-2.0
#include "obs/sinks/jsonl_sink.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/text/json.h"
#include "obs/line_file.h"

namespace trireme::obs {

namespace {

// A line is formatted without building a JSON object: every step has one.
void add_line(std::string& text, std::string_view kind, int64_t attempt, const TimedMetrics& of) {
  text += R"({"kind":)";
  add_json_string(text, kind);
  fmt::format_to(std::back_inserter(text), R"(,"attempt":{},"step":{},"time":)", attempt, of.step);
  add_json_number(text, of.time);
  for (const Metric& metric : of.metrics) {
    text += ',';
    add_json_string(text, metric.name);
    text += ':';
    add_json_number(text, metric.value);
  }
  text += "}\n";
}

void check_names(std::span<const Metric> metrics) {
  for (size_t i = 0; i < metrics.size(); ++i) {
    const auto is_same = [&](const Metric& other) { return other.name == metrics[i].name; };
    TRIREME_CHECK(
        std::none_of(metrics.begin(), metrics.begin() + static_cast<ptrdiff_t>(i), is_same),
        "metric '{}' occurs twice", metrics[i].name);
  }
}

}  // namespace

JsonlSink::JsonlSink(const std::filesystem::path& path, int64_t attempt, Clock wall_clock,
                     Copy copy)
    : attempt_(attempt),
      wall_clock_(std::move(wall_clock)),
      copy_(std::move(copy)),
      file_(cut_partial_line(path), OutputFile::Mode::append) {}

void JsonlSink::add(std::string_view lines) {
  file_.add(lines);
  if (copy_) copy_(lines);
}

void JsonlSink::begin(const AttemptStart& start) {
  const bool resumes = start.resumed_from >= 0;
  base::Json line = {{"kind", resumes ? "resume" : "start"},
                     {"attempt", attempt_},
                     {"step", resumes ? start.resumed_from : 0},
                     {"time", wall_clock_()},
                     {"name", start.name},
                     {"version", start.program.version},
                     {"commit", start.program.commit}};
  if (resumes) line["resumed_from"] = start.resumed_from;
  add(line.dump() + "\n");
}

void JsonlSink::step(std::string_view kind, int64_t step, std::span<const Metric> metrics) {
  const TimedMetrics one{.step = step, .time = wall_clock_(), .metrics = metrics};
  steps(kind, std::span(&one, 1));
}

void JsonlSink::steps(std::string_view kind, std::span<const TimedMetrics> steps) {
  std::string lines;
  for (const TimedMetrics& step : steps) {
    check_names(step.metrics);
    add_line(lines, kind, attempt_, step);
  }
  add(lines);
}

}  // namespace trireme::obs
