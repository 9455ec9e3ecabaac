// SPDX-License-Identifier: Apache-2.0
#include "train/record/ending.h"

#include <fmt/format.h>

#include "obs/terminal/number_text.h"

namespace trireme::train {
namespace {

using analysis::OutcomeKind;

// Why the state of the last step was not saved, and what a resume would do.
std::string unsaved_text(const TrainSummary& s) {
  const std::string step = obs::grouped(s.steps);
  std::string text =
      s.was_stopped
          ? fmt::format("stopped after step {}, which was not saved", step)
          : fmt::format("step {} is the last one, and its checkpoint was not saved", step);
  if (!s.save_problem.empty()) text += ": " + s.save_problem;
  const int64_t newest = newest_checkpoint(s);
  if (newest <= 0) return text + "; there is no checkpoint to resume from";
  return text + fmt::format("; --resume auto repeats the steps after {}, the newest checkpoint",
                            obs::grouped(newest));
}

std::string missing_files_text(const TrainSummary& s) {
  std::string problem;
  if (is_unsaved(s)) problem = unsaved_text(s);
  if (!s.export_problem.empty()) {
    if (!problem.empty()) problem += "; ";
    problem += fmt::format("the weights were not exported: {}; {}", s.export_problem,
                           export_advice(s, s.run_folder.string()));
  }
  return problem;
}

}  // namespace

Ending ending_of(const TrainSummary& s) {
  const std::string missing = missing_files_text(s);
  if (s.has_diverged) {
    return {OutcomeKind::diverged,
            fmt::format("{}: this run has not trained; lower optimizer.lr, or check the data{}",
                        s.divergence, missing.empty() ? "" : "; " + missing)};
  }
  if (!missing.empty()) return {OutcomeKind::unsaved, missing};
  return {s.was_stopped ? OutcomeKind::stopped : OutcomeKind::healthy, ""};
}

std::string_view reason_of(const Ending& ending) {
  switch (ending.kind) {
    case OutcomeKind::diverged:
      return "diverged";
    case OutcomeKind::stopped:
      return "stopped";
    case OutcomeKind::healthy:
      return "done";
    default:
      return "failed";
  }
}

}  // namespace trireme::train
