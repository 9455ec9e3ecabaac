// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text/count_text.h"
#include "obs/terminal/number_text.h"
#include "obs/terminal/table.h"

namespace trireme::cli {
namespace {

constexpr double median_share = 0.5, tail_share = 0.99;

using Seconds = std::optional<double> DisturbanceResult::*;

std::vector<double> times_of(const ChaosReport& report, DisturbanceKind kind,
                             Seconds seconds = &DisturbanceResult::next_step_seconds) {
  std::vector<double> times;
  for (const DisturbanceResult& result : report.results) {
    if (result.done.what.kind == kind && result.*seconds) times.push_back(*(result.*seconds));
  }
  return times;
}

int64_t count_of(const ChaosReport& report, DisturbanceKind kind) {
  return std::ranges::count_if(report.results, [kind](const DisturbanceResult& result) {
    return result.done.what.kind == kind;
  });
}

// Returns "3 kills, 1 freeze, 0 pauses", and after them what was done to other processes than
// ranks.
std::string counts_text(const ChaosReport& report) {
  std::string text;
  for (const DisturbanceKind kind :
       {DisturbanceKind::kill, DisturbanceKind::freeze, DisturbanceKind::pause}) {
    text += (text.empty() ? "" : ", ") + base::count_text(count_of(report, kind), name_of(kind));
  }
  for (const DisturbanceKind kind : all_disturbance_kinds) {
    const int64_t count = is_of_rank(kind) ? 0 : count_of(report, kind);
    if (count == 0) continue;
    text += ", " + base::count_text(count, fmt::format("killed {}", name_of(kind)));
  }
  return text;
}

// What the time to the next step is counted from.
std::string beginning_of(DisturbanceKind kind) {
  if (kind == DisturbanceKind::pause) return "the end of a pause";
  return is_of_rank(kind) ? fmt::format("a {}", name_of(kind))
                          : fmt::format("a kill of the {}", name_of(kind));
}

std::vector<double> times_of_part(const ChaosReport& report, size_t part) {
  std::vector<double> times;
  for (const DisturbanceResult& result : report.results) {
    if (part < result.parts.size()) times.push_back(result.parts[part]);
  }
  return times;
}

std::string times_text(const std::vector<double>& times) {
  if (times.empty()) return "-";
  return fmt::format("p50 {:.3g} s, p99 {:.3g} s, max {:.3g} s of {}",
                     percentile(times, median_share), percentile(times, tail_share),
                     percentile(times, 1), times.size());
}

int64_t all_repeated(const ChaosReport& report) {
  return std::accumulate(
      report.results.begin(), report.results.end(), int64_t{0},
      [](int64_t sum, const DisturbanceResult& result) { return sum + result.repeated_steps; });
}

int64_t max_repeated(const ChaosReport& report) {
  int64_t max = 0;
  for (const DisturbanceResult& result : report.results) {
    max = std::max(max, result.repeated_steps);
  }
  return max;
}

std::string weights_text(const ChaosReport& report) {
  if (report.weights.empty()) return "missing";
  if (report.are_weights_equal()) return "equal, SHA-256 " + report.weights;
  return fmt::format("DIFFERENT: SHA-256 {}, of the quiet run {}", report.weights,
                     report.quiet_weights.empty() ? "missing" : report.quiet_weights);
}

std::string use_text(const UseChange& use) {
  if (!use.is_known) return "not measured";
  return fmt::format("descriptors {} -> {}, threads {} -> {}, memory {} -> {}",
                     use.begin.descriptors, use.end.descriptors, use.begin.threads, use.end.threads,
                     obs::bytes_text(use.begin.memory_bytes),
                     obs::bytes_text(use.end.memory_bytes));
}

std::string names_text(const ChaosReport& report) {
  std::string text = fmt::format("{} right, {} wrong, {} missing", report.count(Naming::right),
                                 report.count(Naming::wrong), report.count(Naming::missing));
  for (const DisturbanceResult& result : report.results) {
    if (result.naming != Naming::wrong) continue;
    text += fmt::format("; number {} ({}): {}", result.done.what.number, text_of(result.done.what),
                        result.verdict);
  }
  return text;
}

base::Json json_of(const ProcessUse& use) {
  return {{"descriptors", use.descriptors},
          {"threads", use.threads},
          {"memory_bytes", use.memory_bytes}};
}

base::Json json_of(const UseChange& use) {
  if (!use.is_known) return nullptr;
  return {{"begin", json_of(use.begin)}, {"end", json_of(use.end)}};
}

base::Json times_json(const std::vector<double>& times) {
  if (times.empty()) return nullptr;
  return {{"count", times.size()},
          {"p50", percentile(times, median_share)},
          {"p99", percentile(times, tail_share)},
          {"max", percentile(times, 1)}};
}

std::string_view name_of(Naming naming) {
  switch (naming) {
    case Naming::right:
      return "right";
    case Naming::wrong:
      return "wrong";
    case Naming::missing:
      return "missing";
    case Naming::none:
      return "none";
  }
  return "";
}

base::Json json_of(const DisturbanceResult& result) {
  base::Json json = to_json(result.done);
  json["next_step_seconds"] = nullptr;
  if (result.next_step_seconds) json["next_step_seconds"] = *result.next_step_seconds;
  json["repeated_steps"] = result.repeated_steps;
  json["naming"] = name_of(result.naming);
  if (!result.verdict.empty()) json["verdict"] = result.verdict;
  for (size_t part = 0; part < result.parts.size(); ++part) {
    json["parts"][recovery_parts[part]] = result.parts[part];
  }
  return json;
}

}  // namespace

int64_t ChaosReport::count(Naming naming) const {
  return std::ranges::count_if(
      results, [naming](const DisturbanceResult& result) { return result.naming == naming; });
}

bool ChaosReport::is_good() const {
  return done() == planned && exit_code == 0 && are_weights_equal() && differences.are_none();
}

std::string to_text(const ChaosReport& report) {
  const StepDifferences& differ = report.differences;
  std::vector<std::vector<std::string>> rows = {
      {"disturbances",
       fmt::format("{} of {} with seed {} on {}: {}", report.done(), report.planned, report.seed,
                   base::count_text(report.ranks, "rank"), counts_text(report))}};
  for (const DisturbanceKind kind : all_disturbance_kinds) {
    if (kind != DisturbanceKind::kill && count_of(report, kind) == 0) continue;
    rows.push_back({fmt::format("from {} to the next finished step", beginning_of(kind)),
                    times_text(times_of(report, kind))});
  }
  for (const DisturbanceKind kind : {DisturbanceKind::kill, DisturbanceKind::freeze}) {
    const auto times = times_of(report, kind, &DisturbanceResult::verdict_seconds);
    if (times.empty()) continue;
    rows.push_back({fmt::format("from a {} to its verdict", name_of(kind)), times_text(times)});
  }
  for (size_t part = 0; part < std::size(recovery_parts); ++part) {
    const std::vector<double> times = times_of_part(report, part);
    if (times.empty()) continue;
    rows.push_back({fmt::format("  of which {}", recovery_parts[part]), times_text(times)});
  }
  const std::vector<std::vector<std::string>> more = {
      {"longest time without a finished step", fmt::format("{:.2f} s", report.longest_gap)},
      {"steps repeated", fmt::format("{}, at most {} after one disturbance", all_repeated(report),
                                     max_repeated(report))},
      {"tokens lost, doubled", fmt::format("{}, {}", obs::grouped(differ.lost_tokens, 0),
                                           obs::grouped(differ.doubled_tokens, 0))},
      {"steps against the quiet run",
       fmt::format("{} missing, {} with another loss, {} repeated with another loss, of {}",
                   differ.missing_steps, differ.other_losses, differ.other_repeats, report.steps)},
      {"final weights", weights_text(report)},
      {"ranks that verdicts name", names_text(report)},
      {"launcher, begin and end", use_text(report.launcher)},
      {"ranks, begin and end", use_text(report.rank_processes)},
      {"exit code of the run", fmt::format("{}", report.exit_code)},
      {"time", fmt::format("{:.1f} s", report.seconds)}};
  rows.insert(rows.end(), more.begin(), more.end());
  const std::vector<obs::Column> columns = {{"chaos", obs::Align::left},
                                            {"result", obs::Align::left}};
  return obs::table_text(columns, rows) +
         (report.is_good()
              ? "\nthe run survives: the bits of a quiet run, no sample lost or doubled\n"
              : "\nthe run does NOT survive, or not all disturbances were done\n");
}

base::Json to_json(const ChaosReport& report) {
  const StepDifferences& differ = report.differences;
  base::Json out = {{"ok", report.is_good()},
                    {"seed", report.seed},
                    {"ranks", report.ranks},
                    {"steps", report.steps},
                    {"planned", report.planned},
                    {"done", report.done()},
                    {"next_step_seconds", base::Json::object()},
                    {"verdict_seconds",
                     {{"kill", times_json(times_of(report, DisturbanceKind::kill,
                                                   &DisturbanceResult::verdict_seconds))},
                      {"freeze", times_json(times_of(report, DisturbanceKind::freeze,
                                                     &DisturbanceResult::verdict_seconds))}}},
                    {"longest_gap_seconds", report.longest_gap},
                    {"repeated_steps", all_repeated(report)},
                    {"max_repeated_steps", max_repeated(report)},
                    {"lost_tokens", differ.lost_tokens},
                    {"doubled_tokens", differ.doubled_tokens},
                    {"missing_steps", differ.missing_steps},
                    {"steps_with_another_loss", differ.other_losses},
                    {"repeated_with_another_loss", differ.other_repeats},
                    {"weights_equal", report.are_weights_equal()},
                    {"weights_sha256", report.weights},
                    {"quiet_weights_sha256", report.quiet_weights},
                    {"names",
                     {{"right", report.count(Naming::right)},
                      {"wrong", report.count(Naming::wrong)},
                      {"missing", report.count(Naming::missing)}}},
                    {"launcher", json_of(report.launcher)},
                    {"rank_processes", json_of(report.rank_processes)},
                    {"exit_code", report.exit_code},
                    {"seconds", report.seconds}};
  for (const DisturbanceKind kind : all_disturbance_kinds) {
    out["next_step_seconds"][std::string(name_of(kind))] = times_json(times_of(report, kind));
  }
  for (size_t part = 0; part < std::size(recovery_parts); ++part) {
    out["recovery_seconds"][recovery_parts[part]] = times_json(times_of_part(report, part));
  }
  out["disturbances"] = base::Json::array();
  for (const DisturbanceResult& result : report.results) {
    out["disturbances"].push_back(json_of(result));
  }
  return out;
}

}  // namespace trireme::cli
