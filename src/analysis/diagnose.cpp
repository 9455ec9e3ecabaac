// SPDX-License-Identifier: Apache-2.0
// diagnose(): runs the rules, removes what another finding explains, and orders the rest by cost.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/diagnosis.h"
#include "analysis/predicted_terms.h"
#include "analysis/rank_view.h"
#include "analysis/rules/rule.h"

namespace trireme::analysis {
namespace {

// Shorter windows are noise: a scheduler's time slice is some milliseconds.
constexpr int64_t patient_steps = 20, short_steps = 5;
constexpr double patient_seconds = 0.4, short_seconds = 0.2;

bool has_cause(const Findings& findings, Cause cause) {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& finding) { return finding.cause == cause; });
}

// Whether `cause` is the consequence of a finding that names its reason.
bool is_explained(const Finding& finding, const Findings& all) {
  for (const Finding& other : all) {
    if (finding.cause == Cause::slow_rank && other.cause == Cause::throttled_clock &&
        other.rank == finding.rank) {
      return true;
    }
    if (finding.cause == Cause::host_pauses && other.cause == Cause::slow_rank &&
        other.share > 2 * finding.share) {
      return true;
    }
    // The ranks of a stage that a slow rank belongs to look like a long stage.
    if (finding.cause == Cause::stage_imbalance && other.cause == Cause::slow_rank &&
        other.stage == finding.stage) {
      return true;
    }
    // Pauses, missing batches and checkpoints make others wait.
    if (finding.cause == Cause::slow_link && other.share > 0 &&
        (other.cause == Cause::slow_rank || other.cause == Cause::host_pauses ||
         other.cause == Cause::data_starvation || other.cause == Cause::slow_save)) {
      return true;
    }
    if (finding.cause == Cause::host_pauses &&
        (other.cause == Cause::data_starvation || other.cause == Cause::slow_save) &&
        other.share > finding.share) {
      return true;
    }
  }
  return false;
}

std::string state_words(const RunRecord& run) {
  switch (run.state) {
    case RunState::running:
      return "running";
    case RunState::done:
      return "done";
    case RunState::stopped:
      return "stopped on request";
    case RunState::failed:
      return "failed";
    case RunState::died:
      return "died";
    default:
      return "state unknown";
  }
}

// The text of the end event of a run that failed; empty if there is none.
std::string end_text(const RunRecord& run) {
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (event->kind == obs::EventKind::start) break;
    if (event->kind == obs::EventKind::end) return event->text;
  }
  return "";
}

std::string sentence_of(const RunRecord& run, const Findings& findings, const Waterfall& fall) {
  std::string text = state_words(run);
  if (run.total_steps > 0) {
    text += fmt::format(", step {} of {}", run.last_step, run.total_steps);
  } else {
    text += fmt::format(", step {}", run.last_step);
  }
  if (run.state == RunState::failed && !has_cause(findings, Cause::dead_rank)) {
    return text + ": " + end_text(run);
  }
  if (!findings.empty()) {
    const Finding& first = findings.front();
    if (first.share > 0) text += fmt::format(", {} of the time is lost", percent_text(first.share));
    return text + ": " + first.title;
  }
  if (run.state == RunState::unknown) return text + "; too little is recorded to judge it";
  if (!fall.is_measured) return text + "; no times of ranks are known";
  if (!fall.predicted_seconds) return text + ", nothing is wrong";
  const double gap = fall.measured_seconds / *fall.predicted_seconds - 1;
  const double band = number_in(run.prediction, "band").value_or(0);
  if (gap < -band) return text + fmt::format(", {} faster than predicted", percent_text(-gap));
  return text + ", as fast as predicted";
}

std::string lamp_of(const RunRecord& run, const Findings& findings) {
  if (run.state == RunState::failed || run.state == RunState::died) return "bad";
  if (has_cause(findings, Cause::dead_rank)) return "bad";
  if (!findings.empty()) return "warning";
  if (run.state == RunState::running || run.state == RunState::done) return "good";
  return "off";
}

}  // namespace

Diagnosis diagnose(const RunRecord& run) {
  Diagnosis diagnosis{.state = run.state, .waterfall = waterfall(run)};
  const RankView windows(run, patient_steps, patient_seconds),
      short_windows(run, short_steps, short_seconds), records(run, 1);
  const Facts facts{run, diagnosis.waterfall, windows, short_windows, records};
  Findings all;
  for (Findings (*const find)(const Facts&) :
       {find_slow_rank, find_throttled_clock, find_slow_link, find_stage_imbalance,
        find_data_starvation, find_slow_save, find_host_pauses, find_needless_recompute}) {
    for (Finding& finding : find(facts)) all.push_back(std::move(finding));
  }
  Findings kept;
  for (const Finding& finding : all) {
    if (!is_explained(finding, all)) kept.push_back(finding);
  }
  Findings rest = find_stale_machine_file(facts, kept);
  for (Finding& finding : rest) kept.push_back(std::move(finding));
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Finding& a, const Finding& b) { return a.share > b.share; });
  // What can be changed comes before what is not understood.
  rest = find_unknown(facts, kept);
  for (Finding& finding : rest) kept.push_back(std::move(finding));
  // Not a matter of time: a dead rank comes first, then what has cost or will cost the run, full
  // memory last.
  diagnosis.findings = find_dead_rank(facts);
  for (Findings (*const find)(const Facts&) :
       {find_unsaved_steps, find_skipped_steps, find_drifting_numbers}) {
    for (Finding& finding : find(facts)) diagnosis.findings.push_back(std::move(finding));
  }
  for (Finding& finding : find_reported_errors(facts, diagnosis.findings)) {
    diagnosis.findings.push_back(std::move(finding));
  }
  for (Finding& finding : kept) diagnosis.findings.push_back(std::move(finding));
  for (Finding& finding : find_memory_near_limit(facts)) {
    diagnosis.findings.push_back(std::move(finding));
  }
  diagnosis.lamp = lamp_of(run, diagnosis.findings);
  diagnosis.sentence = sentence_of(run, diagnosis.findings, diagnosis.waterfall);
  return diagnosis;
}

}  // namespace trireme::analysis
