// SPDX-License-Identifier: Apache-2.0
// What a run recorded against itself: steps that changed nothing, steps that no checkpoint has, and
// events of severity error. None of it is a matter of time, and none of it may look like success.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/rules/rule.h"
#include "base/text/count_text.h"

namespace trireme::analysis {
namespace {

constexpr size_t max_quoted = 3;

// Returns the first event of the last attempt.
std::vector<obs::Event>::const_iterator last_attempt(const RunRecord& run) {
  auto event = run.events.end();
  while (event != run.events.begin()) {
    --event;
    if (event->kind == obs::EventKind::start) break;
  }
  return event;
}

bool saves_checkpoints(const base::Json& config) {
  if (!config.is_object() || !config.contains("checkpoint")) return true;
  const base::Json& section = config["checkpoint"];
  return !section.is_object() || !section.contains("enable") || section["enable"] != false;
}

// Texts of an attempt's failed saves.
std::vector<std::string> failed_saves(const RunRecord& run) {
  std::vector<std::string> texts;
  for (auto event = last_attempt(run); event != run.events.end(); ++event) {
    if (event->kind == obs::EventKind::save_failed) texts.push_back(event->text);
  }
  return texts;
}

std::vector<std::string> quoted(std::vector<std::string> texts) {
  if (texts.size() <= max_quoted) return texts;
  const size_t more = texts.size() - max_quoted;
  texts.resize(max_quoted);
  texts.push_back(fmt::format("and {} more", more));
  return texts;
}

// Whether the last step should have been saved. A run that failed ends between two saves, unless
// saving is what failed.
bool expects_saved_end(const RunRecord& run, bool has_failed_saves) {
  return run.state == RunState::done || run.state == RunState::stopped ||
         (run.state == RunState::failed && has_failed_saves);
}

}  // namespace

Findings find_skipped_steps(const Facts& facts) {
  const RunRecord& run = facts.run;
  const auto found = run.series.find("skipped");
  if (found == run.series.end()) return {};
  std::set<int64_t> expected;  // a fall of the loss scale skips its step
  for (const obs::Event& event : run.events) {
    if (event.kind == obs::EventKind::loss_scale) expected.insert(event.step);
  }
  int64_t skipped = 0, first = -1, last = -1;
  for (size_t i = 0; i < found->second.steps.size(); ++i) {
    const int64_t step = found->second.steps[i];
    if (!(found->second.values[i] > 0) || expected.contains(step)) continue;
    if (skipped++ == 0) first = step;
    last = step;
  }
  if (skipped == 0) return {};
  Finding finding{.cause = Cause::skipped_steps, .first_step = first};
  finding.title = fmt::format("{} of {} steps were skipped, the last at step {}", skipped,
                              found->second.steps.size(), last);
  std::vector<std::string> texts;
  for (const obs::Event& event : run.events) {
    if (event.kind == obs::EventKind::skip && !expected.contains(event.step)) {
      texts.push_back(event.text);
    }
  }
  finding.evidence = quoted(std::move(texts));
  finding.advice =
      "lower optimizer.lr, or check the data of these steps; training.skip_norm_multiple is the "
      "limit above which a step is skipped";
  return {std::move(finding)};
}

Findings find_unsaved_steps(const Facts& facts) {
  const RunRecord& run = facts.run;
  const std::vector<std::string> failed = failed_saves(run);
  if (!expects_saved_end(run, !failed.empty()) || !saves_checkpoints(run.config)) return {};
  int64_t newest = -1;  // a resumed run has what it was resumed from
  for (const obs::Event& event : run.events) {
    if (event.kind == obs::EventKind::checkpoint) newest = std::max(newest, event.step);
    if (event.kind == obs::EventKind::resume) newest = event.step;
  }
  // Neither a save nor a failed one is known: the record is incomplete.
  if ((newest < 0 && failed.empty()) || newest >= run.last_step) return {};
  Finding finding{.cause = Cause::unsaved_steps, .first_step = newest + 1};
  finding.title =
      newest > 0 ? fmt::format("steps {} to {} are not saved: the newest checkpoint is of step {}",
                               newest + 1, run.last_step, newest)
                 : fmt::format("none of {} is saved: there is no checkpoint",
                               base::count_text(run.last_step, "step"));
  finding.evidence = quoted(failed);
  finding.advice =
      newest > 0 ? fmt::format(
                       "make room or mend the disk; trireme train ... --resume auto repeats the "
                       "steps from {} on",
                       newest + 1)
                 : "make room or mend the disk; then train again";
  return {std::move(finding)};
}

Findings find_reported_errors(const Facts& facts, const Findings& others) {
  const RunRecord& run = facts.run;
  const auto is_found = [&](Cause cause) {
    return std::any_of(others.begin(), others.end(),
                       [&](const Finding& finding) { return finding.cause == cause; });
  };
  std::vector<std::string> texts;
  int64_t first = -1;
  for (auto event = last_attempt(run); event != run.events.end(); ++event) {
    if (event->severity != obs::Severity::error) continue;
    // The state of the run and the findings of others contain these.
    if (event->kind == obs::EventKind::end) continue;
    if (event->kind == obs::EventKind::verdict && is_found(Cause::dead_rank)) continue;
    if (event->kind == obs::EventKind::save_failed && is_found(Cause::unsaved_steps)) continue;
    if (texts.empty()) first = event->step;
    texts.push_back(event->text);
  }
  if (texts.empty()) return {};
  Finding finding{.cause = Cause::reported_error, .first_step = first};
  finding.title = texts.size() == 1 ? texts.front()
                                    : fmt::format("{} errors were reported, the last: {}",
                                                  texts.size(), texts.back());
  finding.evidence = quoted(std::move(texts));
  finding.advice = "events.jsonl has all of them, with steps and times";
  return {std::move(finding)};
}

}  // namespace trireme::analysis
