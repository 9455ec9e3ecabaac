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
  for (size_t i = 0; i < std::min(findings.size(), max_shown); ++i) {
    text += fmt::format("warning: {}; {}\n", base::printable(findings[i].title),
                        base::printable(findings[i].advice));
  }
  if (!findings.empty()) {
    text += fmt::format("trireme diagnose {} shows the evidence\n", run_folder.string());
  }
  return text + fmt::format("{}: {}\n", base::printable(std::string(name)),
                            base::printable(diagnosis.sentence));
}

}  // namespace trireme::cli
