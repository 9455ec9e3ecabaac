// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text/json.h"
#include "board/run/run_head.h"
#include "obs/files/rank_columns.h"
#include "obs/run_dir.h"
#include "obs/terminal/number_text.h"

namespace trireme::cli {
namespace {

constexpr size_t max_listed_events = 20;

std::optional<double> last_of(const analysis::RunRecord& run, const char* tag) {
  const auto found = run.series.find(tag);
  if (found == run.series.end() || found->second.values.empty()) return {};
  return found->second.values.back();
}

// A RunRecord has only the lines of steps; validations have other lines.
std::optional<double> last_validation_loss(const std::filesystem::path& folder) {
  board::RunHead head(folder / obs::RunDir::metrics_name);
  head.poll();
  return head.last_value(board::RunHead::validation_tag);
}

std::optional<double> number_in(const base::Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return {};
  return found->get<double>();
}

// NaN and infinities are texts in JSON.
base::Json number_or_null(const std::optional<double>& value) {
  if (!value) return nullptr;
  if (std::isnan(*value)) return "NaN";
  if (std::isinf(*value)) return *value > 0 ? "Infinity" : "-Infinity";
  return *value;
}

std::optional<double> predicted_rate(const base::Json& prediction) {
  const std::optional<double> seconds = number_in(prediction, "seconds");
  const std::optional<double> tokens = number_in(prediction, "tokens_per_step");
  if (!seconds || !tokens || *seconds <= 0) return {};
  return *tokens / *seconds;
}

std::vector<LateRank> late_ranks(const analysis::RunRecord& run) {
  std::vector<LateRank> ranks;
  if (run.ranks.empty() || run.ranks_shape.rows.size() < 2) return ranks;
  const obs::TableShape& shape = run.ranks_shape;
  const obs::TableRecord& last = run.ranks.back();
  const size_t width = shape.columns.size();
  if (last.values.size() != shape.rows.size() * width) return ranks;
  for (size_t rank = 0; rank < shape.rows.size(); ++rank) {
    LateRank one{.rank = rank, .name = shape.rows[rank]};
    for (size_t column = 0; column < width; ++column) {
      const auto value = static_cast<double>(last.values[rank * width + column]);
      if (!std::isfinite(value)) continue;
      if (shape.columns[column] == obs::name_of(obs::RankColumn::compute_seconds)) {
        one.compute_seconds = value;
      }
      if (shape.columns[column].starts_with("late_")) one.late_seconds += value;
    }
    ranks.push_back(std::move(one));
  }
  std::ranges::stable_sort(ranks, std::greater<>(), &LateRank::late_seconds);
  return ranks;
}

std::optional<double> eta_of(const analysis::RunRecord& run, const analysis::Waterfall& fall) {
  const bool is_running = run.state == analysis::RunState::running;
  if (!is_running || run.total_steps <= run.last_step) return {};
  const auto left = static_cast<double>(run.total_steps - run.last_step);
  if (fall.is_measured && fall.measured_seconds > 0) return left * fall.measured_seconds;
  if (run.last_step < 1 || run.last_time <= run.begin_time) return {};
  return left * (run.last_time - run.begin_time) / static_cast<double>(run.last_step);
}

}  // namespace

RunSummary read_summary(const std::filesystem::path& folder, double now) {
  RunSummary summary;
  summary.run = analysis::read_run(folder, now);
  const analysis::RunRecord& run = summary.run;
  summary.diagnosis = analysis::diagnose(run);
  summary.checkpoints = board::read_checkpoints(folder, run.config);
  summary.loss = last_of(run, "loss_metrics/global_avg_loss");
  summary.validation_loss = last_validation_loss(folder);
  summary.tokens_per_second = last_of(run, "throughput(tps)");
  summary.mfu_percent = last_of(run, "mfu(%)");
  summary.predicted_tokens_per_second = predicted_rate(run.prediction);
  if (run.last_time > 0) summary.age_seconds = std::max(0.0, now - run.last_time);
  summary.eta_seconds = eta_of(run, summary.diagnosis.waterfall);
  summary.late_ranks = late_ranks(run);
  return summary;
}

base::Json to_json(const RunSummary& s) {
  base::Json json = {{"name", s.run.name},
                     {"folder", s.run.folder.string()},
                     {"group", s.run.group},
                     {"state", std::string(name_of(s.run.state))},
                     {"lamp", s.diagnosis.lamp},
                     {"sentence", s.diagnosis.sentence},
                     {"outcome", to_json(s.diagnosis.outcome)},
                     {"step", s.run.last_step},
                     {"steps", s.run.total_steps},
                     {"attempt", s.run.attempt},
                     {"loss", number_or_null(s.loss)},
                     {"validation_loss", number_or_null(s.validation_loss)},
                     {"mfu_percent", number_or_null(s.mfu_percent)},
                     {"tokens_per_second", number_or_null(s.tokens_per_second)},
                     {"predicted_tokens_per_second", number_or_null(s.predicted_tokens_per_second)},
                     {"age_seconds", number_or_null(s.age_seconds)},
                     {"eta_seconds", number_or_null(s.eta_seconds)}};
  const board::CheckpointEntry* target = s.checkpoints.rollback_target();
  json["restorable_step"] = target == nullptr ? base::Json() : base::Json(target->step);
  base::Json late = base::Json::array();
  for (const LateRank& one : s.late_ranks) {
    if (late.size() == 8) break;
    late.push_back({{"rank", one.rank},
                    {"compute_seconds", one.compute_seconds},
                    {"late_seconds", one.late_seconds}});
  }
  json["late_ranks"] = std::move(late);
  json["events"] = base::Json::array();
  const size_t first =
      s.run.events.size() > max_listed_events ? s.run.events.size() - max_listed_events : 0;
  for (size_t i = first; i < s.run.events.size(); ++i) {
    json["events"].push_back(obs::to_json(s.run.events[i]));
  }
  json["problems"] = s.run.problems;
  return json;
}

std::string age_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.0f} h", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

std::string step_text(const analysis::RunRecord& run) {
  if (run.total_steps <= 0) return obs::grouped(run.last_step);
  return fmt::format("{} of {}", obs::grouped(run.last_step), obs::grouped(run.total_steps));
}

}  // namespace trireme::cli
