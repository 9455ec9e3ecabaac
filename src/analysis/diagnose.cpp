// SPDX-License-Identifier: Apache-2.0
// diagnose(): runs the rules, removes what another finding explains, and orders the rest by cost.
#include <algorithm>

#include "analysis/diagnosis.h"
#include "analysis/outcome/judge_outcome.h"
#include "analysis/rank_view.h"
#include "analysis/rules/rule.h"

namespace trireme::analysis {
namespace {

// Shorter windows are noise: a scheduler's time slice is some milliseconds.
constexpr int64_t patient_steps = 20, short_steps = 5;
constexpr double patient_seconds = 0.4, short_seconds = 0.2;

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
  // Not a matter of time: a dead rank comes first, then what has cost or will cost the run; full
  // memory and what is over come last.
  diagnosis.findings = find_dead_rank(facts);
  for (Findings (*const find)(const Facts&) :
       {find_diverged, find_unsaved_steps, find_missing_weights, find_skipped_steps,
        find_drifting_numbers}) {
    for (Finding& finding : find(facts)) diagnosis.findings.push_back(std::move(finding));
  }
  Findings over = find_earlier_failures(facts), known = diagnosis.findings;
  known.insert(known.end(), over.begin(), over.end());
  for (Finding& finding : find_reported_errors(facts, known)) {
    diagnosis.findings.push_back(std::move(finding));
  }
  for (Finding& finding : kept) diagnosis.findings.push_back(std::move(finding));
  for (Finding& finding : find_memory_near_limit(facts)) {
    diagnosis.findings.push_back(std::move(finding));
  }
  for (Finding& finding : over) diagnosis.findings.push_back(std::move(finding));
  diagnosis.outcome = judge(run, diagnosis.findings, diagnosis.waterfall);
  diagnosis.lamp = name_of(diagnosis.outcome.severity);
  diagnosis.sentence = diagnosis.outcome.headline;
  return diagnosis;
}

}  // namespace trireme::analysis
