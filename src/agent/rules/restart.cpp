// SPDX-License-Identifier: Apache-2.0
#include "agent/rules/restart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "agent/exit_codes.h"
#include "base/text/json.h"
#include "base/text/json_depth.h"

namespace trireme::agent {
namespace {

constexpr int64_t max_fruitless_starts = 3;
constexpr double max_wait_s = 60;

// Returns the values of a list; none if the text was not written by a launcher.
template <class... Values>
std::optional<std::tuple<Values...>> values_from(const std::string& text) {
  try {
    const base::Json list = base::parse_shallow_json(text);
    if (list.size() != sizeof...(Values)) return std::nullopt;
    return list.get<std::tuple<Values...>>();
  } catch (const base::Json::exception&) {
    return std::nullopt;  // any process may have written the text
  }
}

// Whether a job that ended with exit_diverged goes back.
void decide_after_divergence(const Progress& progress, Decision& decision) {
  if (progress.went_back_to >= 0) {
    decision.reason = fmt::format(
        "the numbers of the run diverged again after it had gone back to step {}: the job is not "
        "started again",
        progress.went_back_to);
  } else if (*progress.before_divergence < 0) {
    decision.reason =
        "the numbers of the run diverged, and no checkpoint from before is left: the job is not "
        "started again";
  } else {
    decision.restarts = true;
    decision.goes_back_to = *progress.before_divergence;
  }
}

}  // namespace

std::string to_text(const NodeOutcome& outcome) {
  return base::Json::array({outcome.exit_code, outcome.may_restart}).dump();
}

std::optional<NodeOutcome> outcome_from(const std::string& text) {
  const auto values = values_from<int, bool>(text);
  if (!values) return std::nullopt;
  return NodeOutcome{std::get<0>(*values), std::get<1>(*values)};
}

NodeOutcome outcome_of_job(std::span<const NodeOutcome> nodes) {
  // By rank: the later ones count more.
  constexpr std::array order = {exit_done, exit_stopped, exit_failed, exit_bad_call,
                                exit_taken_over};
  const auto weight = [&](int code) {
    const auto found = std::find(order.begin(), order.end(), code);
    return found == order.end() ? 2 : found - order.begin();  // unknown: failed
  };
  NodeOutcome job{.exit_code = exit_done, .may_restart = true};
  for (const NodeOutcome& node : nodes) {
    if (weight(node.exit_code) > weight(job.exit_code)) job.exit_code = node.exit_code;
    job.may_restart = job.may_restart && node.may_restart;
  }
  return job;
}

Decision decide(std::span<const NodeOutcome> nodes, const Progress& progress) {
  const NodeOutcome job = outcome_of_job(nodes);
  Decision decision{.exit_code = job.exit_code};
  // Ranks that waited for the next epoch then end as if they had been requested to.
  const bool may_requeue = job.exit_code == exit_failed || job.exit_code == exit_stopped;
  if (may_requeue && !progress.given_up.empty()) {
    decision.exit_code = exit_diverged;
    decision.reason = progress.given_up;
    return decision;
  }
  if (may_requeue && !progress.lost_host.empty()) {
    decision.exit_code = exit_stopped;
    decision.reason = progress.lost_host + ": the job is to be started again, with --resume auto";
    return decision;
  }
  if (job.exit_code == exit_diverged && job.may_restart && progress.before_divergence) {
    decide_after_divergence(progress, decision);
    return decision;
  }
  if (forbids_restart(job.exit_code) || !job.may_restart) return decision;
  if (!progress.next_layout.empty()) {
    decision.restarts = true;
    decision.layout = progress.next_layout;
    return decision;
  }
  const bool is_known = progress.saved_at_start && progress.saved_now;
  const bool has_progressed = is_known && *progress.saved_now > *progress.saved_at_start;
  decision.fruitless = has_progressed ? 0 : progress.fruitless + 1;
  if (is_known && decision.fruitless >= max_fruitless_starts) {
    decision.exit_code = exit_diverged;
    decision.reason = fmt::format(
        "{} starts in a row saved no step newer than {}: the job is not started again",
        decision.fruitless,
        *progress.saved_now < 0 ? "the start" : fmt::format("step {}", *progress.saved_now));
    return decision;
  }
  decision.restarts = progress.restarts < progress.max_restarts;
  if (decision.restarts && decision.fruitless > 0) {
    const double doublings = static_cast<double>(std::min<int64_t>(decision.fruitless, 10) - 1);
    decision.wait_s = std::min(std::exp2(doublings), max_wait_s);
  }
  return decision;
}

std::string to_text(const Decision& d) {
  return base::Json::array(
             {d.exit_code, d.restarts, d.wait_s, d.fruitless, d.reason, d.layout, d.goes_back_to})
      .dump();
}

std::optional<Decision> decision_from(const std::string& text) {
  const auto values =
      values_from<int, bool, double, int64_t, std::string, std::vector<std::string>, int64_t>(text);
  if (!values) return std::nullopt;
  const auto& [exit_code, restarts, wait_s, fruitless, reason, layout, goes_back_to] = *values;
  return Decision{exit_code, restarts,    std::clamp(wait_s, 0.0, max_wait_s), fruitless, reason,
                  layout,    goes_back_to};
}

}  // namespace trireme::agent
