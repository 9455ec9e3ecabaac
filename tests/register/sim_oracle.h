// SPDX-License-Identifier: Apache-2.0
// What must hold in every history of a simulated run, checked after every event. The oracle sees
// what no process does: which swaps the register did, in order, which process is which, and when
// messages really arrived.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/register/register.h"
#include "comm/register/run_record.h"

namespace trireme::comm {

using SimText = std::shared_ptr<const std::string>;
using SimRecord = std::shared_ptr<const RunRecord>;

// A value that a process wants to have in the register, and what the oracle knows about it.
struct SimProposal {
  SimText text;
  std::string request_id;
  int process = -1;            // that proposes
  int64_t process_epoch = -1;  // in which it is
  bool is_commit = false;
  std::vector<int> processes;  // that it chose, by slot
  double gathered_at = 0;      // when it began to ask for what processes hold
};

// The state of one slot that a process has, or had.
struct SimHolding {
  int slot = 0;
  int64_t step = 0;
  bool operator==(const SimHolding&) const = default;
};

class SimOracle {
 public:
  explicit SimOracle(const double& now) : now_(now) { history_.push_back({}); }

  const std::string& problem() const { return problem_; }
  void fail(const std::string& problem);
  int64_t revision() const { return static_cast<int64_t>(history_.size()) - 1; }
  int64_t epochs() const { return history_.back().record ? history_.back().record->epoch + 1 : 0; }
  // What happened, so that a test can see that its histories are worth something.
  struct Counts {
    int64_t commits = 0, conflicts = 0, isolated = 0, from_memory = 0, left_open_and_done = 0;
  };
  const Counts& counts() const { return counts_; }
  double last_commit_at() const { return last_commit_at_; }
  // Parses each text once.
  SimRecord parsed(const SimText& text);

  // ---- the register
  // A proposal is in the hands of a register that then lost its power, or failed.
  void left_open(const SimProposal& proposal) { open_ = proposal; }
  void did(int64_t revision, const SimProposal& proposal);
  void reopened(const RegisterState& state);
  // A process received a reply to a call that began when `min_revision` was known somewhere.
  void replied(int64_t revision, const std::string& text, int64_t min_revision);
  void conflicted(const std::string& request_id);
  int64_t known_revision() const { return known_revision_; }

  // ---- processes
  void started(int process) { ended_at_.resize(static_cast<size_t>(process) + 1, -1); }
  void ended(int process) { ended_at_[static_cast<size_t>(process)] = now_; }
  void holds(int process, const SimHolding& holding);
  void adopted(int process, int slot, const RunRecord& record);
  void joined(int process, int64_t epoch) { joined_[epoch].insert(process); }
  void formed(int process, int64_t epoch);
  void active(int process, int64_t epoch);
  bool is_formed(int64_t epoch) const { return formed_.contains(epoch); }
  const std::vector<int>& processes_of(int64_t epoch) const { return epochs_.at(epoch).processes; }
  // The silence of register and coordinator that a process has really met.
  void isolated(double register_silence, double coordinator_silence, double isolate_s);
  void goes_on(double register_silence, double coordinator_silence, double limit_s);

 private:
  struct Revision {
    SimText text;
    SimRecord record;
    std::string request_id;
  };
  struct Epoch {
    SimRecord record;
    std::vector<int> processes;
  };
  void check_change(const RunRecord* before, const RunRecord& after, const SimProposal& proposal);
  void check_commit(const RunRecord& before, const RunRecord& after, const SimProposal& proposal);
  void check_resume(const RunRecord& record, double gathered_at);

  const double& now_;
  std::string problem_;
  std::vector<Revision> history_;  // by revision
  std::map<int64_t, Epoch> epochs_;
  std::map<int64_t, std::set<int>> joined_;
  std::set<int64_t> formed_;
  std::map<int, int64_t> entered_;                            // the newest epoch of a process
  std::vector<double> ended_at_;                              // by process; -1: it runs
  std::map<std::pair<int, int64_t>, std::set<int>> holders_;  // of slot and step
  SimProposal open_;
  int64_t known_revision_ = 0;
  Counts counts_;
  double last_commit_at_ = -1;
};

}  // namespace trireme::comm
