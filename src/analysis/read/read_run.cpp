// SPDX-License-Identifier: Apache-2.0
// read_run(): every file may be missing, incomplete or damaged, and one that is gives a line in
// RunRecord::problems instead of an error.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "analysis/read/metric_lines.h"
#include "analysis/read/run_state.h"
#include "analysis/run_record.h"
#include "base/error.h"
#include "base/system/regular_file.h"
#include "base/text/count_text.h"
#include "base/text/json_depth.h"
#include "obs/run_dir.h"

namespace trireme::analysis {
namespace {

namespace fs = std::filesystem;

// Files of runs have kilobytes.
constexpr int64_t max_json_bytes = int64_t{64} << 20;

// Returns null if the file is missing or no JSON, and adds a problem.
base::Json json_file(const fs::path& path, std::string_view what,
                     std::vector<std::string>& problems) {
  const std::string name = path.filename().string();
  const base::Result<std::string> text = base::read_regular_file(path, max_json_bytes);
  if (!text) {
    problems.push_back(fmt::format("{} {}: {}", name, text.reason(), what));
    return nullptr;
  }
  base::Json found = base::parse_shallow_json(text.value());
  if (found.is_object()) return found;
  problems.push_back(fmt::format("{} is damaged: {}", name, what));
  return nullptr;
}

// Calls `use` for every complete line that is a JSON object.
void json_lines(const fs::path& path, std::string_view what, std::vector<std::string>& problems,
                const std::function<bool(const base::Json&)>& use) {
  const std::string name = path.filename().string();
  int64_t damaged = 0;
  const base::LinesRead read = base::read_lines(path, {}, [&](std::string_view line) {
    if (line.empty()) return;
    const base::Json found = base::parse_shallow_json(line);
    if (!found.is_object() || !use(found)) ++damaged;
  });
  if (!read.problem.empty()) {
    problems.push_back(fmt::format("{} {}: {}", name, read.problem, what));
  }
  damaged += read.too_long;
  if (damaged > 0) {
    problems.push_back(
        fmt::format("{}: {} cannot be read", name, base::count_text(damaged, "line")));
  }
}

double number_at(const base::Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

bool add_phase(RunRecord& run, const base::Json& line) {
  PhaseSpan span{.attempt = static_cast<int64_t>(number_at(line, "attempt")),
                 .begin = number_at(line, "begin"),
                 .end = number_at(line, "end"),
                 .first_step = static_cast<int64_t>(number_at(line, "first_step")),
                 .last_step = static_cast<int64_t>(number_at(line, "last_step"))};
  const auto seconds = line.find("seconds");
  if (seconds == line.end() || !seconds->is_object()) return false;
  for (const auto& [name, value] : seconds->items()) {
    const auto phase = obs::phase_from(name);
    if (phase && value.is_number()) {
      span.seconds[static_cast<size_t>(*phase)] = value.get<double>();
    }
  }
  run.phases.push_back(span);
  return true;
}

void read_ranks(RunRecord& run) {
  const fs::path path = run.folder / "ranks.bin";
  if (const base::RegularFile file = base::open_regular_file(path); !file.problem.empty()) {
    run.problems.push_back(fmt::format(
        "ranks.bin {}: what each rank waited for is unknown (metrics.ranks_freq)", file.problem));
    return;
  }
  obs::TableReader reader(path);
  reader.poll([&](const obs::TableShape& shape, const obs::TableRecord& record) {
    const bool is_new = run.ranks.empty() || run.ranks.back().attempt != record.attempt;
    if (is_new || !(shape == run.ranks_shape)) {
      run.ranks.clear();
      run.ranks_shape = shape;
    }
    run.ranks.push_back(record);
  });
  const base::Json about = base::parse_shallow_json(run.ranks_shape.about);
  for (const char* key : {"coords", "nodes", "devices"}) {
    if (!about.is_object() || !about.contains(key) || about[key].is_array()) continue;
    run.problems.push_back(fmt::format(
        "ranks.bin: \"{}\" of its header is {} instead of a list by rank, and is not used", key,
        about[key].type_name()));
  }
}

// Returns a text or number of the configuration; null if it is not there.
base::Json key_of(const base::Json& config, const char* section, const char* key) {
  if (!config.is_object() || !config.contains(section)) return nullptr;
  const base::Json& values = config.at(section);
  return values.is_object() && values.contains(key) ? values.at(key) : base::Json(nullptr);
}

}  // namespace

RunRecord read_run(const fs::path& folder, double now) {
  if (!obs::holds_run(folder)) {
    throw base::IoError(fmt::format(
        "{}: no run is in this folder (neither {} nor {}); give the folder of a run, such as "
        "runs/kjv",
        folder.string(), obs::RunDir::config_name, obs::RunDir::metrics_name));
  }
  RunRecord run;
  run.folder = folder;
  run.config =
      json_file(folder / obs::RunDir::config_name, "the configuration is unknown", run.problems);
  run.plan = json_file(folder / "plan.json", "the layout is unknown", run.problems);
  run.prediction =
      json_file(folder / "prediction.json", "nothing is compared with a prediction", run.problems);
  const base::Json name = key_of(run.config, "job", "name");
  const base::Json group = key_of(run.config, "job", "group");
  const base::Json steps = key_of(run.config, "training", "steps");
  if (name.is_string()) run.name = name.get<std::string>();
  if (group.is_string()) run.group = group.get<std::string>();
  if (steps.is_number()) run.total_steps = steps.get<int64_t>();
  if (run.name.empty()) run.name = fs::absolute(folder).lexically_normal().filename().string();

  MetricLines metrics = read_metrics(folder / obs::RunDir::metrics_name, read_tags());
  if (!metrics.problem.empty()) {
    run.problems.push_back(
        fmt::format("metrics.jsonl {}: {}", metrics.problem,
                    metrics.last_step == 0 ? "no step is known" : "later steps are unknown"));
  }
  if (metrics.damaged > 0) {
    run.problems.push_back(
        fmt::format("metrics.jsonl: {} cannot be read", base::count_text(metrics.damaged, "line")));
  }
  run.series = std::move(metrics.series);
  run.attempt = metrics.attempt;
  run.last_step = metrics.last_step;
  run.begin_time = metrics.begin_time;
  run.last_time = metrics.last_time;

  json_lines(folder / "events.jsonl", "what happened is unknown", run.problems,
             [&](const base::Json& line) {
               auto event = obs::event_from(line);
               if (event) run.events.push_back(std::move(*event));
               // Kinds of newer builds are no damage.
               return event.has_value() || line.contains("kind");
             });
  json_lines(folder / "phases.jsonl", "where the time between steps went is unknown", run.problems,
             [&](const base::Json& line) { return add_phase(run, line); });
  read_ranks(run);
  if (!run.ranks.empty()) run.last_time = std::max(run.last_time, run.ranks.back().time);
  if (!run.events.empty()) run.last_time = std::max(run.last_time, run.events.back().time);
  if (!run.phases.empty()) run.last_time = std::max(run.last_time, run.phases.back().end);
  run.state = state_of(run, now);
  return run;
}

}  // namespace trireme::analysis
