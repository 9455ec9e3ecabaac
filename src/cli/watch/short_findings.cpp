// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/short_findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text/printable.h"
#include "obs/clock.h"

namespace trireme::cli {
namespace {

constexpr size_t max_shown = 3;

// Whether a bad outcome has it in its sentence already.
bool is_of_outcome(analysis::Cause cause) {
  using analysis::Cause;
  return cause == Cause::dead_rank || cause == Cause::diverged || cause == Cause::skipped_steps ||
         cause == Cause::unsaved_steps || cause == Cause::missing_weights;
}

}  // namespace

std::optional<analysis::Diagnosis> diagnosis_of(const std::filesystem::path& run_folder) {
  if (run_folder.empty()) return {};
  try {
    return analysis::diagnose(analysis::read_run(run_folder, obs::wall_seconds()));
  } catch (const std::exception& error) {
    base::log_warning("the run was not diagnosed: {}", error.what());
    return {};
  }
}

std::string short_text(const analysis::Diagnosis& diagnosis, std::string_view name,
                       const std::filesystem::path& run_folder) {
  std::string text;
  const std::vector<analysis::Finding>& findings = diagnosis.findings;
  const bool is_bad = diagnosis.outcome.severity == analysis::Severity::bad;
  size_t shown = 0;
  for (const analysis::Finding& finding : findings) {
    if (shown == max_shown) break;
    if (is_bad && is_of_outcome(finding.cause)) continue;
    ++shown;
    text += fmt::format("warning: {}; {}\n", base::printable(finding.title),
                        base::printable(finding.advice));
  }
  if (!findings.empty()) {
    text += fmt::format("trireme diagnose {} shows the evidence\n", run_folder.string());
  }
  if (is_bad && !diagnosis.outcome.advice.empty()) {
    text += fmt::format("what to do: {}\n", base::printable(diagnosis.outcome.advice));
  }
  return text + fmt::format("{}: {}\n", base::printable(name), base::printable(diagnosis.sentence));
}

}  // namespace trireme::cli
