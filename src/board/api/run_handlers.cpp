// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "board/api/handlers.h"
#include "board/board.h"
#include "board/run/json_file.h"
#include "board/run/secrets.h"

namespace trireme::board {
namespace {

base::Json or_null(std::optional<double> value) {
  return value ? number_json(*value) : base::Json(nullptr);
}

// Returns the sum of an object's numbers; null if it is none.
base::Json sum_of_values(const base::Json& object) {
  if (!object.is_object()) return nullptr;
  double sum = 0;
  for (const auto& [key, value] : object.items()) {
    if (value.is_number()) sum += value.get<double>();
  }
  return sum;
}

int64_t shown_step(const RunView::Reading& run) {
  return std::max<int64_t>(0, run.metrics().last_step());
}

// Returns the seconds until the last step at the speed of the last tenth of the run, and at its
// slowest and fastest part.
base::Json eta_json(const RunView::Reading& run) {
  const RunFacts& facts = run.facts();
  const std::optional<int> loss = run.metrics().find(RunView::loss_tag);
  if (facts.state != analysis::RunState::running || !loss) return nullptr;
  const std::vector<uint32_t>& rows = run.metrics().track(*loss).rows;
  const std::vector<MetricRow>& all = run.metrics().rows();
  const int64_t left = facts.total_steps - shown_step(run);
  if (rows.size() < 3 || left < 0) return nullptr;
  const size_t window = std::clamp<size_t>(rows.size() / 10, 2, 2000);
  const size_t parts = std::min<size_t>(10, window);
  std::vector<double> seconds;  // per step
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = rows.size() - 1 - window + window * part / parts;
    const size_t end = rows.size() - 1 - window + window * (part + 1) / parts;
    const MetricRow &first = all[rows[begin]], &last = all[rows[end]];
    if (last.step > first.step && last.time > first.time) {
      seconds.push_back((last.time - first.time) / static_cast<double>(last.step - first.step));
    }
  }
  if (seconds.empty()) return nullptr;
  std::sort(seconds.begin(), seconds.end());
  const auto steps = static_cast<double>(left);
  return {{"low", steps * seconds.front()},
          {"mid", steps * seconds[seconds.size() / 2]},
          {"high", steps * seconds.back()}};
}

// Returns what /api/runs and /api/run/ID have in common.
base::Json head_json(const RunView& view, const RunView::Reading& run, size_t id) {
  const RunFacts& facts = run.facts();
  return {{"id", id},
          {"name", facts.name},
          {"group", facts.group},
          {"folder", view.shown_folder()},
          {"state", analysis::name_of(facts.state)},
          {"lamp", facts.diagnosis.lamp.empty() ? "off" : facts.diagnosis.lamp},
          {"sentence", facts.failure.empty() ? facts.diagnosis.sentence
                                             : "the folder cannot be analysed: " + facts.failure},
          {"step", shown_step(run)},
          {"steps", facts.total_steps},
          {"tokens", or_null(run.last_value("tokens"))}};
}

base::Json program_parameters(const RunFacts& facts) {
  const base::Json& prediction = facts.prediction;
  return prediction.is_object() ? prediction.value("parameters", base::Json()) : base::Json();
}

std::vector<std::string> shown_tags(const MetricStore& metrics) {
  std::vector<std::string> tags;
  for (size_t tag = 0; tag < metrics.tags().size(); ++tag) {
    const bool is_shown =
        metrics.tags()[tag] != "step" && !metrics.track(static_cast<int>(tag)).rows.empty();
    if (is_shown) tags.push_back(metrics.tags()[tag]);
  }
  return tags;
}

}  // namespace

base::Json number_json(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

base::Json runs_json(const Board& board, bool has_planner) {
  base::Json list = base::Json::array();
  const std::vector<RunView*> runs = board.runs();
  for (size_t id = 0; id < runs.size(); ++id) {
    const RunView& view = *runs[id];
    const RunView::Reading run(view);
    base::Json entry = head_json(view, run, id);
    const double last_time = std::max(run.metrics().last_time(), run.facts().last_time);
    entry["loss"] = or_null(run.last_value(RunView::loss_tag));
    entry["age_seconds"] =
        last_time > 0 ? base::Json(board.now() - last_time) : base::Json(nullptr);
    entry["begin_time"] = run.facts().begin_time;
    entry["parameters"] = program_parameters(run.facts());
    list.push_back(std::move(entry));
  }
  return {{"runs", std::move(list)}, {"plan", has_planner}};
}

base::Json run_json(const RunView& view, size_t id, double now) {
  const RunView::Reading run(view);
  const RunFacts& facts = run.facts();
  base::Json out = head_json(view, run, id);
  const base::Json ledger = analysis::to_json(facts.ledger);
  const CheckpointEntry* target = facts.checkpoints.rollback_target();
  out["attempt"] = run.metrics().last_attempt();
  out["begin_time"] = facts.begin_time;
  out["last_time"] = std::max(run.metrics().last_time(), facts.last_time);
  out["loss"] = or_null(run.last_value(RunView::loss_tag));
  out["eta_seconds"] = eta_json(run);
  out["dollars"] =
      ledger.contains("dollars") ? sum_of_values(ledger["dollars"]) : base::Json(nullptr);
  out["restorable"] = target == nullptr
                          ? base::Json(nullptr)
                          : base::Json{{"step", target->step}, {"age_seconds", now - target->time}};
  out["config"] = facts.config;
  out["plan"] = facts.plan;
  out["prediction"] = facts.prediction;
  out["program"] = facts.program;
  out["tags"] = shown_tags(run.metrics());
  out["layers"] = facts.layers;
  out["numerics"] = facts.numerics;
  out["ranks"] = facts.ranks;
  out["rank_columns"] = facts.rank_columns;
  out["attempts"] = ledger.contains("attempts") ? ledger["attempts"] : base::Json::array();
  std::vector<std::string> problems = facts.problems;
  for (const std::vector<std::string>& more : {run.metrics().problems(), run.events().problems()}) {
    for (const std::string& problem : more) problems.push_back(problem);
  }
  out["problems"] = problems;
  out["repeated_points"] = run.metrics().repeated_steps();
  out["revision"] = run.revision();
  return out;
}

base::Json diagnosis_json(const RunView& view) {
  const RunView::Reading run(view);
  if (!run.facts().failure.empty()) return {{"missing", run.facts().failure}};
  return analysis::to_json(run.facts().diagnosis);
}

base::Json ledger_json(const RunView& view) {
  const RunView::Reading run(view);
  if (!run.facts().failure.empty()) return {{"missing", run.facts().failure}};
  return analysis::to_json(run.facts().ledger);
}

base::Json checkpoints_json(const RunView& view, double now) {
  return to_json(RunView::Reading(view).facts().checkpoints, now);
}

base::Json memory_json(const RunView& view) {
  const RunView::Reading run(view);
  const RunFacts& facts = run.facts();
  const auto by_rank = [&](const char* column) {
    base::Json values = base::Json::array();
    const auto found = facts.last_ranks.find(column);
    if (found == facts.last_ranks.end()) return values;
    for (const double value : found->second) {
      values.push_back(std::isfinite(value) ? base::Json(value) : base::Json(nullptr));
    }
    return values;
  };
  base::Json limit, items, total;
  if (facts.prediction.is_object() && facts.prediction.contains("memory") &&
      facts.prediction["memory"].is_object()) {
    const base::Json& memory = facts.prediction["memory"];
    limit = memory.value("limit_bytes", base::Json(nullptr));
    items = memory.value("items", base::Json(nullptr));
    total = memory.value("total_bytes", base::Json(nullptr));
  }
  return {{"limit_bytes", limit},
          {"predicted", items},
          {"predicted_total_bytes", total},
          {"measured_bytes_by_rank", by_rank("memory_bytes")},
          {"limit_bytes_by_rank", by_rank("memory_limit_bytes")},
          {"host_bytes_by_rank", by_rank("host_bytes")}};
}

base::Json traced_json(const RunView& view, const std::string& name) {
  const base::Result<base::Json> file = read_json(view.folder() / (name + ".json"));
  if (file) return file.value();
  return {{"missing", fmt::format("{}.json {}: it is written with traced steps; train with "
                                  "--trace-steps 3:5",
                                  name, file.reason())}};
}

std::string update_event(const Board& board) {
  base::Json list = base::Json::array();
  int64_t sum = 0;
  const std::vector<RunView*> runs = board.runs();
  for (size_t id = 0; id < runs.size(); ++id) {
    const RunView::Reading run(*runs[id]);
    sum += run.revision();
    list.push_back({{"id", id},
                    {"revision", run.revision()},
                    {"step", shown_step(run)},
                    {"state", analysis::name_of(run.facts().state)}});
  }
  return fmt::format("id: {}\nevent: update\ndata: {}\n\n", sum,
                     text_of({{"runs", std::move(list)}}));
}

}  // namespace trireme::board
