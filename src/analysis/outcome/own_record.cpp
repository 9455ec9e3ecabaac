// SPDX-License-Identifier: Apache-2.0
#include "analysis/outcome/own_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

using obs::EventKind;

bool saves_checkpoints(const base::Json& config) {
  if (!config.is_object() || !config.contains("checkpoint")) return true;
  const base::Json& section = config["checkpoint"];
  return !section.is_object() || !section.contains("enable") || section["enable"] != false;
}

// Whether the last step should have been saved. A run that failed ends between two saves, unless
// saving is what failed.
bool expects_saved_end(const RunRecord& run, bool has_failed_saves) {
  return run.state == RunState::done || run.state == RunState::stopped ||
         run.state == RunState::diverged || (run.state == RunState::failed && has_failed_saves);
}

std::set<int64_t> steps_of_loss_scale(const RunRecord& run) {
  std::set<int64_t> steps;  // a fall of the loss scale skips its step
  for (const obs::Event& event : run.events) {
    if (event.kind == EventKind::loss_scale) steps.insert(event.step);
  }
  return steps;
}

bool has_reason(const obs::Event& end, std::string_view reason) {
  const auto found = end.data.find("reason");
  return found != end.data.end() && *found == reason;
}

// What is known of an attempt that has ended.
struct AttemptEnd {
  int64_t step = -1;
  bool has_ended_well = false;
  std::string text;
};

std::string failure_text(int64_t attempt, const AttemptEnd& end) {
  return fmt::format("attempt {} ended{}: {}", attempt,
                     end.step >= 0 ? " at step " + obs::grouped(end.step) : std::string(),
                     end.text.empty() ? "its process ended without a record" : end.text);
}

}  // namespace

std::span<const obs::Event> last_attempt(const RunRecord& run) {
  size_t first = run.events.size();
  while (first > 0 && run.events[first - 1].kind != EventKind::start) --first;
  if (first > 0) --first;
  return std::span(run.events).subspan(first);
}

const obs::Event* last_of(const RunRecord& run, EventKind kind) {
  const auto events = last_attempt(run);
  const auto found = std::find_if(events.rbegin(), events.rend(),
                                  [&](const obs::Event& event) { return event.kind == kind; });
  return found == events.rend() ? nullptr : &*found;
}

bool has_own_end(const RunRecord& run) {
  return last_of(run, EventKind::preempt) != nullptr ||
         (run.total_steps > 0 && run.last_step >= run.total_steps);
}

bool is_after_own_end(const RunRecord& run, const obs::Event& verdict) {
  const obs::Event* end = last_of(run, EventKind::end);
  return end != nullptr && has_own_end(run) && &verdict > end;
}

int64_t first_step_of_attempt(const RunRecord& run) {
  const auto events = last_attempt(run);
  if (events.empty() || events.front().kind != EventKind::start) return 1;
  return std::max<int64_t>(events.front().step, 0) + 1;
}

SkippedSteps skipped_steps(const RunRecord& run) {
  SkippedSteps found;
  const auto series = run.series.find("skipped");
  if (series == run.series.end()) return found;
  const std::set<int64_t> expected = steps_of_loss_scale(run);
  found.of = std::ssize(series->second.steps);
  for (size_t i = 0; i < series->second.steps.size(); ++i) {
    const int64_t step = series->second.steps[i];
    if (series->second.values[i] > 0 && !expected.contains(step)) found.steps.push_back(step);
  }
  for (const obs::Event& event : run.events) {
    if (event.kind == EventKind::skip && !expected.contains(event.step)) {
      found.texts.push_back(event.text);
    }
  }
  return found;
}

std::optional<DivergenceFound> divergence_of(const RunRecord& run) {
  const auto losses = run.series.find("loss_metrics/global_avg_loss");
  if (losses == run.series.end() || losses->second.steps.empty()) return {};
  const std::vector<int64_t>& steps = losses->second.steps;
  const std::vector<double>& values = losses->second.values;
  int64_t first = first_step_of_attempt(run);
  if (steps.back() < first) first = steps.front();  // it had nothing to do
  std::optional<double> start;
  if (steps.front() < first) start = values.front();
  const SkippedSteps skipped = skipped_steps(run);
  Divergence divergence(start);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] < first) continue;
    divergence.add(steps[i], values[i], std::ranges::binary_search(skipped.steps, steps[i]));
  }
  return divergence.judge(run.state != RunState::done && run.state != RunState::diverged);
}

SavedState saved_state(const RunRecord& run) {
  SavedState found;
  for (const obs::Event& event : run.events) {
    if (event.kind == EventKind::checkpoint) found.newest = std::max(found.newest, event.step);
    // A resumed run has what it was resumed from.
    if (event.kind == EventKind::resume) found.newest = event.step;
  }
  for (const obs::Event& event : last_attempt(run)) {
    if (event.kind == EventKind::save_failed) found.failed.push_back(event.text);
    if (event.kind == EventKind::export_failed) found.export_problem = event.text;
    if (event.kind == EventKind::exported) found.export_problem.clear();
  }
  // Neither a save nor a failed one is known: the record is incomplete.
  const bool is_known = found.newest >= 0 || !found.failed.empty();
  found.is_unsaved = is_known && found.newest < run.last_step && saves_checkpoints(run.config) &&
                     expects_saved_end(run, !found.failed.empty());
  return found;
}

std::vector<std::string> survived_failures(const RunRecord& run) {
  std::map<int64_t, AttemptEnd> ends;
  std::vector<std::string> texts;
  std::string verdict;  // after which no group of ranks has formed yet
  int64_t failed = 0;   // the attempt that has it
  for (const obs::Event& event : run.events) {
    if (event.attempt <= 0) continue;  // of a foreign record
    AttemptEnd& end = ends[event.attempt];
    end.step = std::max(end.step, event.step);
    if (event.kind == EventKind::verdict) end.text = event.text;
    if (event.kind == EventKind::end) {
      end.has_ended_well = has_reason(event, "done") || has_reason(event, "stopped");
      if (end.text.empty()) end.text = event.text;
    }
    if (event.kind == EventKind::verdict) {
      verdict = event.text;
      failed = event.attempt;
    }
    const bool is_new_group = event.kind == EventKind::replan && event.data.contains("epoch");
    if (!is_new_group) continue;
    // A new first rank begins an attempt: the failure is the end of the one before.
    if (!verdict.empty() && failed != event.attempt) {
      verdict.clear();
      continue;
    }
    texts.push_back(fmt::format("attempt {} went on from step {} with a new group of ranks{}",
                                event.attempt, obs::grouped(event.step),
                                verdict.empty() ? "" : ": " + verdict));
    end.text.clear();
    verdict.clear();
  }
  for (const PhaseSpan& span : run.phases) {  // a killed attempt has no event of its last step
    const auto end = ends.find(span.attempt);
    if (end != ends.end()) end->second.step = std::max(end->second.step, span.last_step);
  }
  if (ends.empty()) return texts;
  std::vector<std::string> all;
  for (auto end = ends.begin(); end != std::prev(ends.end()); ++end) {
    if (!end->second.has_ended_well) all.push_back(failure_text(end->first, end->second));
  }
  all.insert(all.end(), texts.begin(), texts.end());
  return all;
}

}  // namespace trireme::analysis
