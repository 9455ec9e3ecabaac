// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/regroup.h"

#include <fmt/format.h>

namespace trireme::agent {
namespace {

constexpr int64_t max_fruitless_epochs = 3;

// The others would end in the same way, or must.
bool ends_run(comm::VerdictKind kind) {
  return kind == comm::VerdictKind::unfit || kind == comm::VerdictKind::fenced ||
         kind == comm::VerdictKind::stopped || kind == comm::VerdictKind::no_memory;
}

}  // namespace

NextCourse course_after(const comm::Verdict& verdict, const EpochFacts& facts) {
  if (ends_run(verdict.kind) || facts.has_ended_well) return {};
  NextCourse next{.course = comm::Course::regroup};
  const bool has_progressed =
      facts.reached > facts.reached_before || facts.saved > facts.saved_before;
  next.fruitless = has_progressed ? 0 : facts.fruitless + 1;
  if (next.fruitless < max_fruitless_epochs) return next;
  next.course = comm::Course::end;
  next.reason = fmt::format(
      "{} epochs in a row came to no step after {}: the run is given up", next.fruitless,
      facts.reached_before < 0 ? "the start" : fmt::format("{}", facts.reached_before));
  return next;
}

}  // namespace trireme::agent
