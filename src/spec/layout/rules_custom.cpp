// SPDX-License-Identifier: Apache-2.0
// Rules about custom schedules. All hold if the schedule is a named one.
#include <fmt/format.h>

#include <algorithm>

#include "base/text/count_text.h"
#include "spec/layout/rules_internal.h"
#include "spec/parallel/pipeline_parallel.h"

namespace trireme::spec {
namespace {

using schedule::Schedule;

std::optional<schedule::Fault> fault_of(const RuleCase& c) {
  return schedule::find_fault(schedule::add_missing(*c.l.custom_schedule),
                              std::max(c.l.send_buffers, 1));
}

bool recomputes_early(const Schedule& schedule) {
  return std::ranges::any_of(schedule.program, [](const std::vector<schedule::Action>& program) {
    return std::ranges::find(program, schedule::Op::R, &schedule::Action::op) != program.end();
  });
}

std::string custom_batch_message(const RuleCase& c) {
  using enum LayoutKey;
  const Schedule& own = *c.l.custom_schedule;
  const int workers = c.l.hosted_workers();
  std::string nearest;
  if (own.microbatches % workers == 0) {
    nearest = fmt::format("; nearest: {} = {}", c.name(global_batch),
                          own.microbatches / workers * c.l.micro_batch * c.l.logical_dp);
  }
  return fmt::format("{}: it has {}, but a rank runs {} in a step{}", c.name(custom_schedule),
                     base::count_text(own.microbatches, "micro-batch", "micro-batches"),
                     c.l.rank_microbatches(), nearest);
}

}  // namespace

std::vector<Rule> custom_schedule_rules() {
  using enum LayoutKey;
  constexpr unsigned spoiled = Known::schedule | Known::cut;
  return {
      {.id = "schedule.custom_ranks",
       .whose = Whose::engine,
       .keys = {custom_schedule, pp},
       .needs = Known::degrees | Known::schedule,
       .spoils = spoiled,
       .holds =
           [](const RuleCase& c) { return !is_custom(c) || c.l.custom_schedule->ranks == c.l.pp; },
       .message =
           [](const RuleCase& c) {
             const int ranks = c.l.custom_schedule->ranks;
             return fmt::format("{}: it is for {} ranks, but {} = {}; nearest: {} = {}",
                                c.name(custom_schedule), ranks, c.name(pp), c.l.pp, c.name(pp),
                                ranks);
           }},
      {.id = "schedule.custom_lanes",
       .whose = Whose::engine,
       .keys = {custom_schedule},
       .needs = Known::schedule,
       .spoils = spoiled,
       .holds =
           [](const RuleCase& c) {
             return !is_custom(c) || c.l.custom_schedule->lanes.size() == 1;
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{}: its two lanes need every stage's parameters twice, which the "
                 "engine does not support; use one lane for all micro-batches",
                 c.name(custom_schedule));
           }},
      {.id = "schedule.custom_fault",
       .whose = Whose::engine,
       .keys = {custom_schedule},
       .needs = Known::schedule,
       .spoils = spoiled,
       .holds = [](const RuleCase& c) { return !is_custom(c) || !fault_of(c); },
       .message =
           [](const RuleCase& c) {
             return fmt::format("{}: {}", c.name(custom_schedule), fault_of(c)->reason);
           }},
      {.id = "schedule.custom_recompute",
       .whose = Whose::engine,
       .keys = {custom_schedule},
       .needs = Known::schedule,
       .spoils = spoiled,
       .holds =
           [](const RuleCase& c) {
             return !is_custom(c) || !recomputes_early(*c.l.custom_schedule);
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{}: it recomputes whole stages early (R), but the engine "
                 "recomputes layer by layer; leave R out",
                 c.name(custom_schedule));
           }},
      {.id = "schedule.custom_sends",
       .whose = Whose::engine,
       .keys = {custom_schedule},
       .needs = Known::schedule,
       .spoils = spoiled,
       .holds =
           [](const RuleCase& c) {
             return !is_custom(c) || sends_in_turn(schedule::add_missing(*c.l.custom_schedule));
           },
       .message =
           [](const RuleCase& c) {
             return fmt::format(
                 "{}: a rank computes an output for another rank before it has sent "
                 "the previous one; put SendY and SendDx directly after their F and B",
                 c.name(custom_schedule));
           }},
      {.id = "schedule.custom_micro_batches",
       .whose = Whose::engine,
       .keys = {custom_schedule, global_batch},
       .needs = Known::degrees | Known::data | Known::batch | Known::schedule,
       .spoils = spoiled,
       .holds =
           [](const RuleCase& c) {
             return !is_custom(c) || c.l.custom_schedule->microbatches == c.l.rank_microbatches();
           },
       .message = custom_batch_message},
  };
}

}  // namespace trireme::spec
