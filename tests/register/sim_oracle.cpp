// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim_oracle.h"

namespace trireme::comm {

void SimOracle::fail(const std::string& problem) {
  if (problem_.empty()) problem_ = fmt::format("{:.2f} s: {}", now_, problem);
}

SimRecord SimOracle::parsed(const SimText& text) {
  for (size_t i = history_.size(); i-- > 1;) {
    if (history_[i].text == text || *history_[i].text == *text) return history_[i].record;
  }
  return std::make_shared<const RunRecord>(run_record_from(*text));
}

void SimOracle::did(int64_t revision, const SimProposal& proposal) {
  if (revision <= this->revision()) {  // done before, and asked again
    const Revision& made = history_[static_cast<size_t>(revision)];
    if (made.request_id != proposal.request_id) fail("a swap is reported as done that was not");
    return;
  }
  if (revision != this->revision() + 1) return fail("a revision was left out");
  const auto record = std::make_shared<const RunRecord>(run_record_from(*proposal.text));
  check_change(history_.back().record.get(), *record, proposal);
  history_.push_back({proposal.text, record, proposal.request_id});
}

void SimOracle::reopened(const RegisterState& state) {
  if (state.revision == revision() + 1 && open_.text && *open_.text == state.value) {
    did(state.revision, open_);
    ++counts_.left_open_and_done;
  }
  open_ = {};
  if (state.revision != revision()) {
    return fail(fmt::format("revision {} was reported as done, and revision {} is left", revision(),
                            state.revision));
  }
  const SimText& text = history_.back().text;
  if (state.value != (text ? *text : "")) fail("the newest value is another one");
}

void SimOracle::replied(int64_t revision, const std::string& text, int64_t min_revision) {
  if (revision < min_revision) {
    return fail(fmt::format("revision {} was returned after revision {} was known", revision,
                            min_revision));
  }
  if (revision > this->revision()) return fail("a revision was returned that there is not");
  const SimText& made = history_[static_cast<size_t>(revision)].text;
  if (text != (made ? *made : "")) fail(fmt::format("revision {} has two values", revision));
  known_revision_ = std::max(known_revision_, revision);
}

void SimOracle::conflicted(const std::string& request_id) {
  ++counts_.conflicts;
  for (const Revision& made : history_) {
    if (made.text && made.request_id == request_id) {
      return fail("a swap that was done is reported as a conflict");
    }
  }
}

// ---- records

void SimOracle::check_change(const RunRecord* before, const RunRecord& after,
                             const SimProposal& proposal) {
  if (proposal.is_commit && before != nullptr) return check_commit(*before, after, proposal);
  const int64_t expected = before == nullptr ? 0 : before->epoch + 1;
  if (after.epoch != expected) {
    return fail(fmt::format("epoch {} follows epoch {}", after.epoch, expected - 1));
  }
  const CommitPoint last = before == nullptr ? CommitPoint{} : before->last_commit;
  if (after.last_commit != last) fail("an epoch changes the last commit");
  std::set<int> places(proposal.processes.begin(), proposal.processes.end());
  if (places.size() != proposal.processes.size()) fail("a process has two slots");
  for (const RunMember& spare : after.spares) {
    if (after.slot_of(spare.incarnation) >= 0) fail("a spare has a slot");
  }
  check_resume(after, proposal.gathered_at);
  if (epochs_.contains(after.epoch)) fail(fmt::format("two records of epoch {}", after.epoch));
  epochs_[after.epoch] = {std::make_shared<const RunRecord>(after), proposal.processes};
}

void SimOracle::check_commit(const RunRecord& before, const RunRecord& after,
                             const SimProposal& proposal) {
  if (after.epoch != before.epoch || proposal.process_epoch != before.epoch) {
    return fail(fmt::format("a process of epoch {} commits in epoch {}", proposal.process_epoch,
                            before.epoch));
  }
  const std::vector<int>& processes = processes_of(before.epoch);
  if (std::find(processes.begin(), processes.end(), proposal.process) == processes.end()) {
    fail("a process commits that is no member");
  }
  RunRecord rest = after;
  rest.last_commit = before.last_commit;
  if (rest != before) fail("a commit changes the epoch");
  if (after.last_commit.step <= before.last_commit.step ||
      after.last_commit.epoch != before.epoch) {
    fail("the last commit does not increase");
  }
  ++counts_.commits;
  last_commit_at_ = now_;
}

void SimOracle::check_resume(const RunRecord& record, double gathered_at) {
  const int64_t step = record.resume.step;
  if (record.resume.source == "start" && step == 0 && record.last_commit.step < 0) return;
  if (record.resume.source == "checkpoint" && step == record.last_commit.step) return;
  if (record.resume.source != "memory" || step < record.last_commit.step) {
    return fail(fmt::format("it resumes from step {} of {}", step, record.resume.source));
  }
  ++counts_.from_memory;
  for (size_t slot = 0; slot < record.members.size(); ++slot) {
    const auto found = holders_.find({static_cast<int>(slot), step});
    const bool has_holder =
        found != holders_.end() &&
        std::any_of(found->second.begin(), found->second.end(), [&](int process) {
          const double ended = ended_at_[static_cast<size_t>(process)];
          return ended < 0 || ended >= gathered_at;
        });
    if (!has_holder) {
      return fail(
          fmt::format("it resumes from step {}, which no process has of slot {}", step, slot));
    }
  }
}

// ---- processes

void SimOracle::holds(int process, const SimHolding& holding) {
  holders_[{holding.slot, holding.step}].insert(process);
}

void SimOracle::adopted(int process, int slot, const RunRecord& record) {
  const auto epoch = epochs_.find(record.epoch);
  if (epoch == epochs_.end()) {
    return fail(fmt::format("epoch {} is used and not in the register", record.epoch));
  }
  if (epoch->second.record->members != record.members ||
      epoch->second.record->resume != record.resume) {
    return fail(fmt::format("two records of epoch {}", record.epoch));
  }
  const auto [entered, is_first] = entered_.try_emplace(process, record.epoch);
  if (!is_first && entered->second >= record.epoch) {
    return fail(
        fmt::format("a process enters epoch {} after epoch {}", record.epoch, entered->second));
  }
  entered->second = record.epoch;
  if (epoch->second.processes[static_cast<size_t>(slot)] != process) {
    fail(fmt::format("a process takes slot {}, which another one has", slot));
  }
}

void SimOracle::formed(int process, int64_t epoch) {
  const auto found = epochs_.find(epoch);
  if (found == epochs_.end()) return fail("a group forms for an epoch that there is not");
  if (found->second.processes.front() != process) fail("a group is formed by another process");
  for (size_t slot = 0; slot < found->second.processes.size(); ++slot) {
    if (!joined_[epoch].contains(found->second.processes[slot])) {
      return fail(
          fmt::format("the group of epoch {} forms before slot {} has joined", epoch, slot));
    }
  }
  formed_.insert(epoch);
}

void SimOracle::active(int process, int64_t epoch) {
  if (!formed_.contains(epoch)) fail("a process trains in a group that was not formed");
  const auto entered = entered_.find(process);
  if (entered == entered_.end() || entered->second != epoch) {
    fail("a process trains in an epoch that it has not entered");
  }
}

void SimOracle::isolated(double register_silence, double coordinator_silence, double isolate_s) {
  ++counts_.isolated;
  if (std::min(register_silence, coordinator_silence) < isolate_s) {
    fail(
        fmt::format("ranks are stopped after {:.1f} s without the register and {:.1f} s without "
                    "the coordinator",
                    register_silence, coordinator_silence));
  }
}

void SimOracle::goes_on(double register_silence, double coordinator_silence, double limit_s) {
  if (std::min(register_silence, coordinator_silence) > limit_s) {
    fail("ranks go on although they are cut off");
  }
}

}  // namespace trireme::comm
