// SPDX-License-Identifier: Apache-2.0
// How a simulated process enters an epoch, proposes the next one, and commits.
#include <algorithm>
#include <optional>
#include <utility>

#include "sim_world.h"

namespace trireme::comm {

void SimWorld::enter(SimProcess& process, int slot) {
  oracle_.adopted(process.number, slot, *process.record);
  process.epoch = process.record->epoch;
  process.slot = slot;
  process.saves = false;
  process.phase = Phase::restoring;
  process.entered_at = now_;
  process.joined = 0;
  hear_coordinator(process);  // whose record it is
  SimMessage ready = from(process, Kind::restored);
  ready.to = process.node;
  const bool is_slow = process.record->resume.source == "checkpoint";
  at(now_ + (is_slow ? uniform(1, 4) : uniform(0.3, 1)), std::move(ready));
}

void SimWorld::restored(SimProcess& process, int64_t epoch) {
  if (process.epoch != epoch || process.phase != Phase::restoring) return;
  const ResumePoint& resume = process.record->resume;
  const SimHolding own{process.slot, resume.step};
  if (resume.source == "memory" && !has_holder(own)) return gather(process);  // it was lost since
  gets(process, own);
  process.phase = Phase::joined;
  oracle_.joined(process.number, epoch);
  if (process.slot != 0) return;
  process.joined |= 1;
  form(process);
}

void SimWorld::gather(SimProcess& process) {
  const bool needs_register = bug_ != SimBug::majority_of_live;
  if ((process.call && needs_register) || now_ < process.waits_until) return;
  process.gathered_at = now_;
  process.gathers_until = now_ + times_.gather;
  process.question = ++questions_;
  process.reports = {{process.number, process.node, process.incarnation, false, process.held}};
  for (int node = 0; node < node_count_; ++node) {
    if (node == process.node) continue;
    SimMessage question = from(process, Kind::ask_report);
    question.to = node;
    question.number = process.question;
    send(std::move(question));
  }
}

ResumePoint SimWorld::resume_point(const SimProcess& process) const {
  const auto has = [&](int slot, int64_t step) {
    return std::any_of(
        process.reports.begin(), process.reports.end(), [&](const SimReport& report) {
          return std::find(report.held.begin(), report.held.end(), SimHolding{slot, step}) !=
                 report.held.end();
        });
  };
  const int64_t committed = process.record ? process.record->last_commit.step : -1;
  ResumePoint best = committed < 0 ? ResumePoint{0, "start"} : ResumePoint{committed, "checkpoint"};
  for (const SimReport& report : process.reports) {
    for (const SimHolding& one : report.held) {
      bool is_whole = true;
      for (int slot = 0; slot < slots_; ++slot) is_whole = is_whole && has(slot, one.step);
      if (bug_ == SimBug::any_holder) is_whole = true;
      if (is_whole && one.step > best.step) best = {one.step, "memory"};
    }
  }
  return best;
}

void SimWorld::propose(SimProcess& process) {
  process.gathers_until = 0;
  process.waits_until = now_ + uniform(0.5, 2);
  const bool has_coordinator =
      std::any_of(process.reports.begin(), process.reports.end(),
                  [](const SimReport& report) { return report.is_coordinator; });
  // A process without a slot does not disturb a group that it does not see.
  if (has_coordinator && !process.is_in_epoch()) return;
  if (static_cast<int>(process.reports.size()) < slots_) return;
  SimProposal proposal{.process = process.number,
                       .process_epoch = process.epoch,
                       .gathered_at = process.gathered_at};
  const auto change = change_of(process, proposal.processes);
  if (!change) return;
  const auto next = successor(process, *change);
  if (!next) return;
  if (bug_ == SimBug::majority_of_live && now_ - process.register_at > 3) {
    return learn(process, process.revision, std::make_shared<const RunRecord>(next.value()));
  }
  if (process.call) return;
  proposal.text = std::make_shared<const std::string>(to_text(next.value()));
  call_register(process, std::move(proposal));
}

// Processes that have a slot keep it; the others take those that are left.
std::optional<EpochChange> SimWorld::change_of(const SimProcess& process,
                                               std::vector<int>& processes) const {
  std::vector<const SimReport*> chosen(static_cast<size_t>(slots_), nullptr), left;
  for (const SimReport& report : process.reports) {
    const int slot = process.record ? process.record->slot_of(report.incarnation) : -1;
    if (slot >= 0) {
      chosen[static_cast<size_t>(slot)] = &report;
    } else {
      left.push_back(&report);
    }
  }
  size_t taken = 0;
  for (const SimReport*& one : chosen) {
    if (one != nullptr) continue;
    if (taken == left.size()) return std::nullopt;
    one = left[taken];
    if (bug_ != SimBug::spare_twice) ++taken;
  }
  EpochChange change{.seen_epoch = process.record ? process.record->epoch : -1,
                     .plan_digest = "p",
                     .layout = "dp",
                     .resume = resume_point(process),
                     .reason = "r"};
  for (const SimReport* const one : chosen) {
    change.members.push_back({std::to_string(one->node), one->incarnation});
    processes.push_back(one->process);
  }
  if (bug_ == SimBug::spare_twice) return change;
  for (; taken < left.size(); ++taken) {
    change.spares.push_back({std::to_string(left[taken]->node), left[taken]->incarnation});
  }
  return change;
}

base::Result<RunRecord> SimWorld::successor(const SimProcess& process,
                                            const EpochChange& change) const {
  if (bug_ != SimBug::spare_twice) {
    return process.record ? next_epoch(*process.record, change) : first_epoch("r", change);
  }
  // As by a function that does not refuse it.
  return RunRecord{.run = "r",
                   .epoch = change.seen_epoch + 1,
                   .members = change.members,
                   .plan_digest = "p",
                   .layout = "dp",
                   .resume = change.resume,
                   .reason = "r",
                   .last_commit = process.record ? process.record->last_commit : CommitPoint{}};
}

// ---- commits

void SimWorld::look_for_commit(SimProcess& process) {
  if (process.phase != Phase::active || process.slot != 0 || process.saves) return;
  if (process.step < process.record->last_commit.step + 3) return;
  process.saves = true;
  SimMessage written = from(process, Kind::written);
  written.to = process.node;
  written.number = process.step;
  at(now_ + uniform(0.2, 3), std::move(written));
}

// The files of a checkpoint are written.
void SimWorld::commit_step(SimProcess& process, const SimMessage& written) {
  if (process.call) {  // one at a time
    SimMessage again = written;
    return at(now_ + 0.1, std::move(again));
  }
  process.saves = false;
  if (written.epoch != process.epoch) return;
  const auto next = commit(*process.record, written.number, process.epoch);
  if (!next) return;
  SimProposal proposal{.text = std::make_shared<const std::string>(to_text(next.value())),
                       .process = process.number,
                       .process_epoch = process.epoch,
                       .is_commit = true};
  call_register(process, std::move(proposal));
}

}  // namespace trireme::comm
