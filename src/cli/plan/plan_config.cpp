// SPDX-License-Identifier: Apache-2.0
// The answer as a configuration of `trireme train`, for --out and for the page.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/plan/plan_report.h"
#include "cli/plan/plan_words.h"
#include "config/config_text.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {

std::string plan_config(const PlanQuestion& q, const plan::Proposal& best) {
  if (!best.confirmed.has_plan) {
    throw base::ConfigError(fmt::format(
        "--out: the engine cannot run {}: {}", spec::words(best.layout),
        best.confirmed.problem.empty() ? "it is one of another program" : best.confirmed.problem));
  }
  if (q.model.empty()) {
    throw base::ConfigError(
        "--out: a configuration names the file of its model; give the model with --model or "
        "--from-hf");
  }
  const std::string comment =
      fmt::format("trireme plan: {} on {} x {}.\n{}\n{:.4g} s a step predicted, {}.",
                  q.job.model.name, q.gpus, q.machine.name, spec::to_text(best.layout),
                  best.confirmed.seconds, memory_text(best.confirmed.bytes));
  return config::config_text(plan::workload_of(q.job), best.confirmed.plan.layout,
                             {.model = q.model, .comment = comment});
}

}  // namespace trireme::cli
