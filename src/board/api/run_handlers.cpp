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

// Returns the seconds until the last step at the speed of the last tenth of the run, and at its
// slowest and fastest part.
base::Json eta_json(const RunView::Reading& run) {
  const RunFacts& facts = run.facts();
  const std::optional<int> loss = run.metrics().find(RunView::loss_tag);
  if (facts.state != analysis::RunState::running || !loss) return nullptr;
  const std::vector<uint32_t>& rows = run.metrics().track(*loss).rows;
  const std::vector<MetricRow>& all = run.metrics().rows();
  const int64_t left = facts.total_steps - run.glance().last_step();
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

base::Json run_json(const RunView& view, size_t id, double now) {
  const RunView::Reading run(view);
  const RunFacts& facts = run.facts();
  base::Json out = head_json(view, run.glance(), id);
  const base::Json ledger = analysis::to_json(facts.ledger);
  const CheckpointEntry* target = facts.checkpoints.rollback_target();
  out["attempt"] = run.metrics().last_attempt();
  out["begin_time"] = facts.begin_time > 0 ? facts.begin_time : run.metrics().first_time();
  out["last_time"] = run.glance().last_time();
  out["loss"] = optional_json(run.glance().last_value(RunView::loss_tag));
  out["eta_seconds"] = eta_json(run);
  out["dollars"] = dollars_json(facts);
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

}  // namespace trireme::board
