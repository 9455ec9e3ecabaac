// SPDX-License-Identifier: Apache-2.0
// A rank that ended a run, by the verdict that the run wrote.
#include <fmt/format.h>

#include "analysis/outcome/own_record.h"
#include "analysis/rules/rule.h"
#include "obs/files/signal_events.h"
#include "obs/terminal/number_text.h"

namespace trireme::analysis {
namespace {

Finding finding_of(int rank, int64_t step, const std::string& text) {
  Finding finding{.cause = Cause::dead_rank, .rank = rank, .first_step = step};
  finding.title = rank >= 0
                      ? fmt::format("rank {} failed at step {}: {}", rank, obs::grouped(step), text)
                      : fmt::format("the run ended at step {}: {}", obs::grouped(step), text);
  finding.advice =
      "read the log of that rank and of its node's kernel (dmesg: out of memory, XID), then "
      "continue with trireme train --resume, without that node if it fails again";
  return finding;
}

// Did the last attempt end because a data file was truncated while it was in use?
bool was_lost_file(const RunRecord& run) {
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (event->kind == obs::EventKind::start) break;
    if (obs::is_of_signal(*event) && event->data.contains("exit_code")) return true;
  }
  return false;
}
constexpr const char* lost_file_advice =
    "put the file back as it was when the run started, then continue with trireme train --resume "
    "auto";

}  // namespace

Findings find_dead_rank(const Facts& facts) {
  const RunRecord& run = facts.run;
  if (run.state != RunState::failed && run.state != RunState::died) return {};
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    if (event->kind == obs::EventKind::start) break;
    if (event->kind != obs::EventKind::verdict || is_after_own_end(run, *event)) continue;
    int rank = event->rank;
    if (rank < 0 && event->data.contains("rank") && event->data["rank"].is_number_integer()) {
      rank = event->data["rank"].get<int>();
    }
    Finding finding = finding_of(rank, event->step >= 0 ? event->step : run.last_step, event->text);
    if (was_lost_file(run)) finding.advice = lost_file_advice;
    finding.evidence.push_back(fmt::format("events.jsonl has the verdict: {}", event->text));
    for (const std::string& file : event->evidence) finding.evidence.push_back(file);
    return {std::move(finding)};
  }
  if (run.state == RunState::died) {
    const size_t ranks = run.ranks_shape.rows.size();
    Finding finding =
        finding_of(ranks == 1 ? 0 : -1, run.last_step,
                   "the process ended without reporting an error, as after signal 9 or a crash");
    finding.evidence = {"owner.json is not released, and its process or its lease is gone"};
    return {std::move(finding)};
  }
  return {};
}

}  // namespace trireme::analysis
