// SPDX-License-Identifier: Apache-2.0
#include "cli/chaos/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"

namespace trireme::cli {
namespace {

bool is_same_loss(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= loss_tolerance * std::max(std::abs(a), std::abs(b));
}

// Returns the time of the first recovery after `time`: a new attempt, or an epoch of the same
// processes. Infinity: there is none.
double recovery_after(const RunFacts& run, double time) {
  double first = std::numeric_limits<double>::infinity();
  for (const double start : run.starts) {
    if (start > time) first = std::min(first, start);
  }
  for (const obs::Event& event : run.events) {
    const bool is_epoch = event.kind == obs::EventKind::replan && event.data.contains("epoch");
    if (is_epoch && event.time > time) first = std::min(first, event.time);
  }
  return first;
}

const StepLine* first_step_after(const RunFacts& run, double time) {
  const auto found =
      std::ranges::find_if(run.steps, [time](const StepLine& line) { return line.time > time; });
  return found == run.steps.end() ? nullptr : &*found;
}

// Returns the highest step that had finished at `time`.
int64_t newest_until(const RunFacts& run, double time) {
  int64_t newest = 0;
  for (const StepLine& line : run.steps) {
    if (line.time <= time) newest = std::max(newest, line.step);
  }
  return newest;
}

// Judges by the first verdict of the launcher between the two times; ranks write verdicts of fatal
// signals, which have no list of ranks.
void judge_naming(const RunFacts& run, double from, double until, DisturbanceResult& result) {
  const bool is_due = loses_rank(result.done.what.kind);
  result.naming = is_due ? Naming::missing : Naming::none;
  for (const obs::Event& event : run.events) {
    const bool is_of_launcher =
        event.kind == obs::EventKind::verdict && event.data.contains("ranks");
    if (!is_of_launcher || event.time < from || event.time >= until) continue;
    result.verdict = event.text;
    result.verdict_seconds = event.time - from;
    const bool names_it = event.data.at("ranks") == base::Json::array({result.done.what.rank});
    result.naming = is_due && names_it ? Naming::right : Naming::wrong;
    return;
  }
}

// Returns the seconds by part of the first recovery that the run recorded between the two times.
std::vector<double> parts_between(const RunFacts& run, double from, double until) {
  for (const obs::Event& event : run.events) {
    if (event.kind != obs::EventKind::recovered) continue;
    if (event.time < from || event.time >= until) continue;
    std::vector<double> parts;
    for (const char* name : recovery_parts) {
      const auto found = event.data.find(name);
      if (found == event.data.end() || !found->is_number()) return {};
      parts.push_back(found->get<double>());
    }
    return parts;
  }
  return {};
}

// Returns the last computation of every step.
std::map<int64_t, StepLine> last_of_each(std::span<const StepLine> lines) {
  std::map<int64_t, StepLine> last;
  for (const StepLine& line : lines) last.insert_or_assign(line.step, line);
  return last;
}

}  // namespace

base::Json to_json(const DoneDisturbance& done) {
  return {{"number", done.what.number},
          {"kind", name_of(done.what.kind)},
          {"rank", done.what.rank},
          {"after_step", done.what.after_step},
          {"step_share", done.what.step_share},
          {"pause_seconds", done.what.pause_seconds},
          {"process", done.process},
          {"time", done.time},
          {"newest_step", done.newest}};
}

DoneDisturbance done_from(const base::Json& json) {
  DoneDisturbance done;
  const auto name = json.at("kind").get<std::string>();
  const auto kind = std::ranges::find_if(all_disturbance_kinds,
                                         [&](DisturbanceKind one) { return name_of(one) == name; });
  if (kind == std::end(all_disturbance_kinds)) {
    throw base::ConfigError(fmt::format("unknown kind of disturbance '{}'", name));
  }
  done.what = {.number = json.at("number").get<int64_t>(),
               .kind = *kind,
               .rank = json.at("rank").get<int>(),
               .after_step = json.at("after_step").get<int64_t>(),
               .step_share = json.at("step_share").get<double>(),
               .pause_seconds = json.at("pause_seconds").get<double>()};
  done.process = json.at("process").get<pid_t>();
  done.time = json.at("time").get<double>();
  done.newest = json.at("newest_step").get<int64_t>();
  return done;
}

std::vector<DisturbanceResult> results_of(const RunFacts& run,
                                          std::span<const DoneDisturbance> all) {
  std::vector<DisturbanceResult> results;
  for (size_t i = 0; i < all.size(); ++i) {
    DisturbanceResult result{.done = all[i]};
    const double time = all[i].time;
    const double until =
        i + 1 < all.size() ? all[i + 1].time : std::numeric_limits<double>::infinity();
    const bool recovers = loses_rank(all[i].what.kind);
    const double goes_on = time + all[i].what.pause_seconds;
    // Steps whose lines were under way when the rank was killed are not those of the next epoch.
    const double recovery = recovers ? recovery_after(run, time) : goes_on;
    if (const StepLine* next = first_step_after(run, recovery)) {
      result.next_step_seconds = next->time - goes_on;
      result.repeated_steps = std::max<int64_t>(0, newest_until(run, recovery) - next->step + 1);
    }
    judge_naming(run, time, until, result);
    if (recovers) result.parts = parts_between(run, time, until);
    results.push_back(std::move(result));
  }
  return results;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<double>(values.size());
  const auto rank = static_cast<size_t>(std::clamp(std::ceil(share * count), 1.0, count));
  std::ranges::sort(values);
  return values[rank - 1];
}

StepDifferences differences(std::span<const StepLine> quiet, std::span<const StepLine> disturbed) {
  StepDifferences found;
  const std::map<int64_t, StepLine> expected = last_of_each(quiet), last = last_of_each(disturbed);
  for (const auto& [step, line] : expected) {
    const auto same = last.find(step);
    if (same == last.end()) {
      ++found.missing_steps;
    } else if (!is_same_loss(same->second.loss, line.loss)) {
      ++found.other_losses;
    }
  }
  std::map<int64_t, double> first;
  std::set<int64_t> changed;
  for (const StepLine& line : disturbed) {
    const auto [at, is_new] = first.emplace(line.step, line.loss);
    if (!is_new && !is_same_loss(at->second, line.loss)) changed.insert(line.step);
  }
  found.other_repeats = std::ssize(changed);
  if (!expected.empty() && !last.empty()) {
    const double difference = last.rbegin()->second.tokens - expected.rbegin()->second.tokens;
    found.lost_tokens = std::max(0.0, -difference);
    found.doubled_tokens = std::max(0.0, difference);
  }
  return found;
}

double longest_gap(std::span<const StepLine> steps) {
  double longest = 0;
  for (size_t i = 1; i < steps.size(); ++i) {
    longest = std::max(longest, steps[i].time - steps[i - 1].time);
  }
  return longest;
}

}  // namespace trireme::cli
