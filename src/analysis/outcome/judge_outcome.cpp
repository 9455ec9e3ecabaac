// SPDX-License-Identifier: Apache-2.0
// First the kind, by the state of the run and the causes among the findings; the severity follows
// from the kind, and the sentence from the finding that decided.
#include "analysis/outcome/judge_outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/outcome/own_record.h"
#include "analysis/predicted_terms.h"
#include "analysis/rules/rule.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

const Finding* find(const Findings& findings, Cause cause) {
  const auto found = std::ranges::find(findings, cause, &Finding::cause);
  return found == findings.end() ? nullptr : &*found;
}

bool lacks_files(const Findings& findings) {
  return find(findings, Cause::unsaved_steps) != nullptr ||
         find(findings, Cause::missing_weights) != nullptr;
}

OutcomeKind kind_of(const RunRecord& run, const Findings& findings, const Waterfall& fall) {
  const bool has_diverged = find(findings, Cause::diverged) != nullptr;
  switch (run.state) {
    case RunState::died:
      return OutcomeKind::died;
    case RunState::failed:
      if (find(findings, Cause::dead_rank) != nullptr) return OutcomeKind::failed;
      // What an error ended has failed, whatever its numbers were.
      if (!has_own_end(run)) return OutcomeKind::failed;
      if (has_diverged) return OutcomeKind::diverged;
      return lacks_files(findings) ? OutcomeKind::unsaved : OutcomeKind::failed;
    case RunState::diverged:
      return OutcomeKind::diverged;
    case RunState::running:
      return has_diverged ? OutcomeKind::diverged : OutcomeKind::running;
    case RunState::done:
      if (has_diverged) return OutcomeKind::diverged;
      if (lacks_files(findings)) return OutcomeKind::unsaved;
      return fall.is_measured ? OutcomeKind::healthy : OutcomeKind::too_short;
    case RunState::stopped:
      if (has_diverged) return OutcomeKind::diverged;
      return lacks_files(findings) ? OutcomeKind::unsaved : OutcomeKind::stopped;
    case RunState::unknown:
      break;
  }
  return has_diverged ? OutcomeKind::diverged : OutcomeKind::unknown;
}

// A failure that the run recovered from is listed, and costs it nothing any more.
bool is_concern(const Finding& finding) { return finding.cause != Cause::earlier_failures; }

Severity severity_of(OutcomeKind kind, const Findings& findings) {
  switch (kind) {
    case OutcomeKind::unsaved:
    case OutcomeKind::diverged:
    case OutcomeKind::failed:
    case OutcomeKind::died:
      return Severity::bad;
    default:
      break;
  }
  if (std::ranges::any_of(findings, is_concern)) return Severity::warning;
  const bool is_off = kind == OutcomeKind::stopped || kind == OutcomeKind::unknown;
  return is_off ? Severity::off : Severity::good;
}

// The finding that decided about the kind; null if the state alone did.
const Finding* decisive(OutcomeKind kind, const Findings& findings) {
  switch (kind) {
    case OutcomeKind::failed:
    case OutcomeKind::died:
      return find(findings, Cause::dead_rank);
    case OutcomeKind::diverged:
      return find(findings, Cause::diverged);
    case OutcomeKind::unsaved: {
      const Finding* unsaved = find(findings, Cause::unsaved_steps);
      return unsaved != nullptr ? unsaved : find(findings, Cause::missing_weights);
    }
    default: {
      const auto found = std::ranges::find_if(findings, is_concern);
      return found == findings.end() ? nullptr : &*found;
    }
  }
}

std::string_view state_words(RunState state) {
  constexpr std::array<std::string_view, 7> words = {
      "running", "done", "stopped on request", "ended", "failed", "died", "state unknown"};
  return words.at(static_cast<size_t>(state));
}

// "done, step 40 of 40, after 2 failures"
std::string progress_text(const RunRecord& run, const Findings& findings) {
  std::string text =
      fmt::format("{}, step {}", state_words(run.state), obs::grouped(run.last_step));
  if (run.total_steps > 0) text += fmt::format(" of {}", obs::grouped(run.total_steps));
  if (const Finding* earlier = find(findings, Cause::earlier_failures)) {
    text += fmt::format(", after {}", base::count_text(std::ssize(earlier->evidence), "failure"));
  }
  return text;
}

// Two records of ranks are needed: the first one has the steps that warm up.
int64_t steps_to_judge(const RunRecord& run) {
  constexpr int64_t default_freq = 20;
  const auto freq =
      number_in(run.config.is_object() && run.config.contains("metrics") ? run.config["metrics"]
                                                                         : base::Json(),
                "ranks_freq");
  return 2 * (freq ? static_cast<int64_t>(*freq) : default_freq);
}

std::string speed_text(const RunRecord& run, const Waterfall& fall) {
  if (!fall.is_measured) {
    const int64_t needed = steps_to_judge(run);
    if (run.last_step - first_step_of_attempt(run) + 1 < needed) {
      return fmt::format("; too short to judge its speed (needs {} steps)", obs::grouped(needed));
    }
    return "; no times of ranks are known";
  }
  if (!fall.predicted_seconds) return ", nothing is wrong";
  const double gap = fall.measured_seconds / *fall.predicted_seconds - 1;
  const double band = number_in(run.prediction, "band").value_or(0);
  if (gap < -band) return fmt::format(", {} faster than predicted", percent_text(-gap));
  return ", as fast as predicted";
}

std::string headline_of(OutcomeKind kind, const RunRecord& run, const Findings& findings,
                        const Waterfall& fall) {
  const std::string text = progress_text(run, findings);
  const Finding* finding = decisive(kind, findings);
  const obs::Event* end = last_of(run, obs::EventKind::end);
  // What the run itself gave as the reason has the cause, too.
  const bool has_reason = run.state == RunState::failed || run.state == RunState::diverged;
  if (has_reason && end != nullptr && find(findings, Cause::dead_rank) == nullptr) {
    return text + ": " + end->text;
  }
  if (finding != nullptr) {
    const std::string lost =
        finding->share > 0 ? fmt::format(", {} of the time is lost", percent_text(finding->share))
                           : std::string();
    return text + lost + ": " + finding->title;
  }
  if (kind == OutcomeKind::failed) return text + "; the reason is not recorded";
  if (kind == OutcomeKind::unknown) return text + "; too little is recorded to judge it";
  return text + speed_text(run, fall);
}

}  // namespace

Outcome judge(const RunRecord& run, const Findings& findings, const Waterfall& fall) {
  Outcome outcome{.kind = kind_of(run, findings, fall)};
  outcome.severity = severity_of(outcome.kind, findings);
  outcome.headline = headline_of(outcome.kind, run, findings, fall);
  if (const Finding* finding = decisive(outcome.kind, findings)) outcome.advice = finding->advice;
  return outcome;
}

base::Json to_json(const Outcome& outcome) {
  return {{"kind", name_of(outcome.kind)},
          {"severity", name_of(outcome.severity)},
          {"headline", outcome.headline},
          {"advice", outcome.advice}};
}

}  // namespace trireme::analysis
