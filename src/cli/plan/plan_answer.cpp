// SPDX-License-Identifier: Apache-2.0
// Answers the question of `trireme plan`, for the verb and for the page of `trireme board --plan`.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/plan/plan_report.h"
#include "spec/layout/layout_text.h"

namespace trireme::cli {
namespace {

using plan::Proposal;

// Number of faster layouts shown for the program whose settings were read.
constexpr size_t max_better = 3;

// Prices the layout of the question, with the stack of the program whose settings were read.
std::optional<Proposal> priced(const PlanQuestion& q) {
  if (!q.asked) return {};
  if (q.asked->ranks() != q.gpus) {
    throw base::ConfigError(fmt::format("{} has {} ranks, but the job has {} GPUs",
                                        spec::words(*q.asked), q.asked->ranks(), q.gpus));
  }
  if (const std::string rule = plan::broken_rule(q.job, *q.asked); !rule.empty()) {
    throw base::ConfigError(fmt::format("layout '{}': {}", spec::to_text(*q.asked), rule));
  }
  return plan::propose(q.job, q.machine, q.own_stack ? *q.own_stack : q.stack, *q.asked);
}

}  // namespace

PlanReport plan_answer(const PlanQuestion& q, const plan::PlanProgress& progress) {
  plan::SearchOptions options;
  options.gpus = q.gpus;
  options.space = q.space;
  options.memory_fraction = q.memory_fraction;
  const std::optional<Proposal> asked = priced(q);
  std::vector<Proposal> better;
  plan::AnswerOptions more;
  if (asked && q.own_stack) {
    better = plan::better_than(q.job, q.machine, *q.own_stack, options, *asked, max_better);
  } else if (asked) {
    more.known.push_back(asked->layout);
  }
  more.progress = progress;
  return plan_report(q, plan::answer(q.job, q.machine, q.stack, options, more), asked, better);
}

}  // namespace trireme::cli
