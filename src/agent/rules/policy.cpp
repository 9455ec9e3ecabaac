// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/policy.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"

namespace trireme::agent {
namespace {

using enum Mode;
using enum Event;

constexpr auto mode_names = std::to_array<const char*>(
    {"running", "collecting", "own_failure", "concluded", "asked", "stopping", "broken_stop",
     "killing", "regrouping", "deciding", "over"});
constexpr auto event_names = std::to_array<const char*>(
    {"limit_passed", "rank_failed", "rank_lost", "all_reported", "rank_stalled", "launcher_lost",
     "verdict_given", "regroup", "ranks_ready", "nodes_ready", "formed", "hopeless", "store_gone",
     "stop", "insist", "save", "all_ended", "all_outcomes", "decided"});
constexpr auto action_names = std::to_array<const char*>(
    {"hold_output", "judge", "blame_node", "announce", "forward_stop", "forward_save", "terminate",
     "kill", "publish", "propose", "follow", "end_alone", "replace", "kill_late", "tell_ready",
     "form", "enter"});

constexpr size_t mode_count = static_cast<size_t>(Mode::unchanged);
constexpr size_t event_count = static_cast<size_t>(Event::count);
static_assert(mode_names.size() == mode_count && event_names.size() == event_count);

constexpr uint32_t bit(Mode mode) { return 1U << static_cast<unsigned>(mode); }
template <class... Modes>
constexpr uint32_t in(Modes... modes) {
  return (bit(modes) | ...);
}
constexpr uint32_t all_modes = (1U << mode_count) - 1;
constexpr uint32_t not_in(uint32_t modes) { return all_modes & ~modes; }

// Ranks are watched for failures: there is neither a verdict nor a request to stop.
constexpr uint32_t watching = in(running, collecting, own_failure);
constexpr uint32_t stopped = in(stopping, broken_stop);
constexpr uint32_t failing = in(collecting, own_failure);
constexpr uint32_t ended = in(deciding, over);

constexpr Mode same = Mode::unchanged;
constexpr Action none = Action::none;

constexpr auto rules = std::to_array<PolicyRule>({
    {failing, limit_passed, same, Action::judge},
    {in(concluded), limit_passed, asked, Action::terminate},
    {in(asked, stopping, broken_stop, killing), limit_passed, killing, Action::kill},
    {in(deciding), limit_passed, over, Action::end_alone},
    {in(regrouping), limit_passed, same, Action::kill_late},
    {in(running, over), limit_passed, same, none},

    {failing | in(running), rank_failed, own_failure, Action::hold_output},
    {stopped, rank_failed, broken_stop, none},
    {in(regrouping), rank_failed, same, Action::replace},
    {not_in(watching | stopped | in(regrouping)), rank_failed, same, none},
    {in(running), rank_lost, collecting, Action::hold_output},
    {not_in(in(running)), rank_lost, same, none},
    {in(own_failure), all_reported, same, Action::judge},
    {not_in(in(own_failure)), all_reported, same, none},
    {watching, rank_stalled, same, Action::judge},
    {not_in(watching), rank_stalled, same, none},
    {watching, launcher_lost, same, Action::blame_node},
    {in(regrouping), launcher_lost, asked, Action::terminate},
    {not_in(watching | in(regrouping)), launcher_lost, same, none},

    {watching, verdict_given, concluded, Action::hold_output | Action::announce},
    {not_in(watching), verdict_given, same, none},
    {watching, regroup, regrouping, Action::hold_output | Action::announce | Action::replace},
    {not_in(watching), regroup, same, none},
    {in(regrouping), ranks_ready, same, Action::tell_ready},
    {not_in(in(regrouping)), ranks_ready, same, none},
    {in(regrouping), nodes_ready, same, Action::form},
    {not_in(in(regrouping)), nodes_ready, same, none},
    {in(regrouping), formed, running, Action::enter},
    {not_in(in(regrouping)), formed, same, none},
    {in(regrouping), hopeless, asked, Action::terminate},
    {not_in(in(regrouping)), hopeless, same, none},
    {watching, store_gone, concluded, Action::hold_output | Action::announce},
    {in(regrouping), store_gone, asked, Action::terminate},
    {in(deciding), store_gone, over, Action::end_alone},
    {not_in(watching | in(regrouping, deciding)), store_gone, same, none},

    {in(running, collecting, regrouping), stop, stopping, Action::forward_stop},
    {in(own_failure), stop, broken_stop, Action::forward_stop},
    {in(deciding), stop, over, Action::end_alone},
    {not_in(watching | in(regrouping, deciding)), stop, same, none},
    {stopped, insist, killing, Action::kill},
    {in(deciding), insist, over, Action::end_alone},
    {not_in(stopped | in(deciding)), insist, same, none},
    {watching | stopped, save, same, Action::forward_save},
    {not_in(watching | stopped), save, same, none},

    {in(own_failure), all_ended, same, Action::judge},
    {not_in(in(own_failure, regrouping) | ended), all_ended, deciding, Action::publish},
    {ended | in(regrouping), all_ended, same, none},
    {in(deciding), all_outcomes, same, Action::propose},
    {not_in(in(deciding)), all_outcomes, same, none},
    {in(deciding), decided, over, Action::follow},
    {not_in(in(deciding)), decided, same, none},
});

// The index of the rule of each cell; -1: none, -2: several.
using Cells = std::array<std::array<int, event_count>, mode_count>;
constexpr Cells cells = [] {
  Cells made{};
  for (auto& row : made) row.fill(-1);
  for (size_t rule = 0; rule < rules.size(); ++rule) {
    for (size_t mode = 0; mode < mode_count; ++mode) {
      if ((rules[rule].modes >> mode & 1U) == 0) continue;
      int& cell = made[mode][static_cast<size_t>(rules[rule].event)];
      cell = cell == -1 ? static_cast<int>(rule) : -2;
    }
  }
  return made;
}();
constexpr bool is_complete = [] {
  for (const auto& row : cells) {
    for (const int cell : row) {
      if (cell < 0) return false;
    }
  }
  return true;
}();
static_assert(is_complete, "every pair of mode and event needs exactly one rule");

std::string names_of(uint32_t modes) {
  std::string text;
  for (size_t mode = 0; mode < mode_count; ++mode) {
    if ((modes >> mode & 1U) != 0)
      text += (text.empty() ? "" : ", ") + std::string(mode_names[mode]);
  }
  return text;
}

}  // namespace

const char* name_of(Mode mode) { return mode_names.at(static_cast<size_t>(mode)); }
const char* name_of(Event event) { return event_names.at(static_cast<size_t>(event)); }

std::string text_of(Action action) {
  std::string text;
  for (size_t i = 0; i < action_names.size(); ++i) {
    if (!has(action, static_cast<Action>(1U << i))) continue;
    text += (text.empty() ? "" : ", ") + std::string(action_names[i]);
  }
  return text;
}

const PolicyRule& rule_of(Mode mode, Event event) {
  return rules.at(
      static_cast<size_t>(cells.at(static_cast<size_t>(mode)).at(static_cast<size_t>(event))));
}

std::string policy_table() {
  std::string text = "| event | in mode | next mode | actions |\n|---|---|---|---|\n";
  for (const PolicyRule& rule : rules) {
    if (rule.next == same && rule.action == none) continue;
    text += fmt::format("| {} | {} | {} | {} |\n", name_of(rule.event), names_of(rule.modes),
                        rule.next == same ? "the same" : name_of(rule.next), text_of(rule.action));
  }
  return text;
}

double Policy::limit_of(Mode mode) const {
  const PolicyLimits& l = limits_;
  const std::array<double, mode_count> by_mode = {
      // in the order of Mode
      0,          l.collecting,  l.own_failure, l.concluded,  l.asked,
      l.stopping, l.broken_stop, l.killing,     l.regrouping, l.deciding,
      0};
  return by_mode.at(static_cast<size_t>(mode));
}

PolicyStep Policy::next(const PolicyState& before, const PolicyEvent& given, double now) const {
  TRIREME_CHECK(now > 0, "the time is {}", now);
  PolicyState state = before;
  if (given.epoch < state.epoch) return {state};
  Event event = given.event;
  if (event == time_passed) {
    if (state.looked_at > 0 && now - state.looked_at > limits_.inattention) {
      state.judges_from = now + limits_.detect;
    }
    state.looked_at = now;
    const double limit = limit_of(state.mode);
    if (limit == 0 || now - state.since < limit) return {state};
    event = limit_passed;
  }
  const bool is_late = state.looked_at > 0 && now - state.looked_at > limits_.inattention;
  if (event == rank_stalled && (is_late || now < state.judges_from)) return {state};
  if (event == stop || event == interrupt) {
    const bool is_repeated = state.stopped_at > 0 && now - state.stopped_at >= limits_.insist;
    event = event == interrupt && is_repeated ? insist : stop;
    if (state.stopped_at == 0) state.stopped_at = now;
  }
  const PolicyRule& rule = rule_of(state.mode, event);
  if (rule.next == same || rule.next == state.mode) return {state, rule.action};
  // The others have been reporting since the first failure.
  const bool goes_on = state.mode == collecting && rule.next == own_failure;
  if (!goes_on) state.since = now;
  state.mode = rule.next;
  if (event == formed) {
    ++state.epoch;
    state.judges_from = now + limits_.detect;  // ranks connect first
  }
  return {state, rule.action};
}

}  // namespace trireme::agent
