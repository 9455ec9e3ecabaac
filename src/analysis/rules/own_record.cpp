// SPDX-License-Identifier: Apache-2.0
// What a run recorded against itself: numbers that diverged, steps that changed nothing, steps that
// no checkpoint has, weights that were not written, and events of severity error. None of it is a
// matter of time, and none of it may look like success.
#include "analysis/outcome/own_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/outcome/onset.h"
#include "analysis/rules/rule.h"
#include "base/text/count_text.h"
#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

constexpr size_t max_quoted = 3;

std::vector<std::string> quoted(std::vector<std::string> texts) {
  if (texts.size() <= max_quoted) return texts;
  const size_t more = texts.size() - max_quoted;
  texts.resize(max_quoted);
  texts.push_back(fmt::format("and {} more", more));
  return texts;
}

// The text of the end event of a run that says of itself that it has diverged.
std::string own_verdict(const RunRecord& run) {
  if (run.state != RunState::diverged) return "";
  for (const obs::Event& event : last_attempt(run)) {
    if (event.kind == obs::EventKind::end) return event.text;
  }
  return "";
}

std::string export_words(const RunRecord& run, int64_t newest) {
  if (newest <= 0) return "";
  const std::string folder = run.folder.string();
  if (newest >= run.last_step) {
    return fmt::format("`trireme ckpt export {}` makes the weights from the checkpoint of step {}",
                       folder, obs::grouped(newest));
  }
  return fmt::format("`trireme ckpt export {}` would export step {}, not step {}", folder,
                     obs::grouped(newest), obs::grouped(run.last_step));
}

}  // namespace

Findings find_diverged(const Facts& facts) {
  const RunRecord& run = facts.run;
  const std::optional<DivergenceFound> found = divergence_of(run);
  const std::string own = own_verdict(run);
  if (!found && own.empty()) return {};
  Finding finding{.cause = Cause::diverged, .first_step = found ? found->first_step : -1};
  finding.title = found ? fmt::format("diverged since step {}: {}", obs::grouped(found->first_step),
                                      found->text)
                        : own;
  for (const obs::Event& event : last_attempt(run)) {
    if (event.kind == obs::EventKind::skip) finding.evidence.push_back(event.text);
  }
  finding.evidence = quoted(std::move(finding.evidence));
  finding.advice = "lower optimizer.lr, or check the data of these steps";
  const int64_t newest = saved_state(run).newest;
  if (found && newest >= found->first_step) {
    finding.advice += fmt::format(
        "; the checkpoint of step {} has diverged, too: continue with trireme train ... --resume "
        "auto, which takes one from before step {}, or train again",
        obs::grouped(newest), obs::grouped(onset_of_divergence(run).step));
  } else {
    finding.advice += "; then train again, or continue from a checkpoint before that step";
  }
  return {std::move(finding)};
}

Findings find_skipped_steps(const Facts& facts) {
  SkippedSteps skipped = skipped_steps(facts.run);
  if (skipped.steps.empty()) return {};
  Finding finding{.cause = Cause::skipped_steps, .first_step = skipped.steps.front()};
  finding.title = fmt::format("{} of {} steps were skipped, the last at step {}",
                              obs::grouped(std::ssize(skipped.steps)), obs::grouped(skipped.of),
                              obs::grouped(skipped.steps.back()));
  finding.evidence = quoted(std::move(skipped.texts));
  finding.advice =
      "lower optimizer.lr, or check the data of these steps; training.skip_norm_multiple is the "
      "limit above which a step is skipped";
  return {std::move(finding)};
}

Findings find_unsaved_steps(const Facts& facts) {
  const RunRecord& run = facts.run;
  const SavedState saved = saved_state(run);
  if (!saved.is_unsaved) return {};
  Finding finding{.cause = Cause::unsaved_steps, .first_step = saved.newest + 1};
  if (saved.newest > 0) {
    finding.title = fmt::format("steps {} to {} are not saved: the newest checkpoint is of step {}",
                                obs::grouped(saved.newest + 1), obs::grouped(run.last_step),
                                obs::grouped(saved.newest));
    finding.advice = fmt::format(
        "make room or mend the disk; trireme train ... --resume auto repeats the steps from {} "
        "on; {}",
        obs::grouped(saved.newest + 1), export_words(run, saved.newest));
  } else {
    finding.title = fmt::format("none of {} step{} is saved: there is no checkpoint",
                                obs::grouped(run.last_step), run.last_step == 1 ? "" : "s");
    finding.advice = "make room or mend the disk; then train again";
  }
  finding.evidence = quoted(saved.failed);
  return {std::move(finding)};
}

Findings find_missing_weights(const Facts& facts) {
  const RunRecord& run = facts.run;
  const SavedState saved = saved_state(run);
  if (saved.export_problem.empty()) return {};
  Finding finding{.cause = Cause::missing_weights, .first_step = run.last_step};
  finding.title = saved.export_problem;
  finding.advice = "make room or mend the disk";
  const std::string words = export_words(run, saved.newest);
  finding.advice += words.empty() ? "; then train again: there is no checkpoint" : "; " + words;
  return {std::move(finding)};
}

Findings find_earlier_failures(const Facts& facts) {
  std::vector<std::string> texts = survived_failures(facts.run);
  if (texts.empty()) return {};
  Finding finding{.cause = Cause::earlier_failures};
  finding.title = fmt::format("the run went on after {}, the last: {}",
                              base::count_text(std::ssize(texts), "failure"), texts.back());
  finding.evidence = std::move(texts);
  finding.advice = fmt::format(
      "nothing, unless it happens again; `trireme report {} --out report.html` has what each "
      "failure cost",
      facts.run.folder.string());
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
  for (const obs::Event& event : last_attempt(run)) {
    if (event.severity != obs::Severity::error) continue;
    // The state of the run and the findings of others contain these.
    if (event.kind == obs::EventKind::end) continue;
    if (is_after_own_end(run, event)) continue;
    const bool is_of_rank = is_found(Cause::dead_rank) || is_found(Cause::earlier_failures);
    if (event.kind == obs::EventKind::verdict && is_of_rank) continue;
    if (event.kind == obs::EventKind::save_failed && is_found(Cause::unsaved_steps)) continue;
    if (event.kind == obs::EventKind::export_failed && is_found(Cause::missing_weights)) continue;
    if (texts.empty()) first = event.step;
    texts.push_back(event.text);
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
