// SPDX-License-Identifier: Apache-2.0
// One history of a run on a virtual clock: a process on each node, and on node 0 also the process
// that has the register. The processes act by the functions of run_record.h and isolation.h, the
// register is a JournalRegister on a disk that loses power. The seed decides what happens to them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "comm/register/isolation.h"
#include "comm/register/journal_register.h"
#include "sim_disk.h"
#include "sim_oracle.h"

namespace trireme::comm {

enum class SimBug : uint8_t {
  none,
  majority_of_live,     // without the register, the processes that are left go on among themselves
  epoch_not_synced,     // the disk has it seconds later
  reply_before_sync,    // the disk has it a moment later
  request_id_ignored,   // a swap that is asked for again is a new one
  epoch_not_compared,   // receivers take messages of any epoch
  commit_without_swap,  // a commit overwrites what is there
  any_holder,           // the newest step that any process has of any slot
  settable_clock,       // silence is a difference of a clock that jumps
  spare_twice,          // a spare takes the places of two processes
  short_window,         // a group has less time to form than a restore takes
  process_number        // the incarnation is the number of the process
};

constexpr int max_sim_nodes = 5;
constexpr int register_host = max_sim_nodes;  // as an address of the network

// Seconds of the virtual clock. All times follow from how fast a silent process is found.
struct SimTimes {
  double tick = 0.4, detect = 1.6, window = 16, gather = 0.6, reply = 1, isolate = 8;
};

struct SimMessage {
  enum class Kind : uint8_t {
    tick,             // a process looks at the time
    restored,         // it has the state of its slot
    written,          // the files of a checkpoint are complete
    step,             // the group finishes a step
    fault,            // something happens (SimFault)
    flush,            // the disk writes what was not synced
    register_call,    // to the register
    register_answer,  // from it
    member,           // to the coordinator: here I am
    beat,             // from the coordinator, to all nodes
    ask_report,       // a process that wants to form the next epoch asks who is there
    report,
    fenced  // a message of a lower epoch was refused
  };
  Kind kind = Kind::tick;
  int from = 0, to = 0;     // nodes
  int process = -1;         // that sends it, or whose timer it is
  int64_t epoch = -1;       // of the sender
  std::string incarnation;  // of the sender
  int slot = -1;
  bool is_joined = false;  // member, report: it has restored its state; beat: the group has formed
  int64_t number = 0;      // of a call, a question, a fault; the step of a checkpoint
  // ---- the register
  bool is_swap = false, is_refused = false, is_done = false;
  int64_t revision = 0;  // expected, or present
  SimText text;
  std::optional<SimProposal> proposal;
  // ---- reports
  std::vector<SimHolding> held;
};

struct SimReport {
  int process = 0, node = 0;
  std::string incarnation;
  bool is_coordinator = false;  // of a group that has formed
  std::vector<SimHolding> held;
};

struct SimCall {
  int64_t number = 0;
  bool is_swap = false;
  int64_t expected = 0, min_revision = 0;
  SimProposal proposal;
  double sent_at = 0;
};

struct SimProcess {
  enum class Phase : uint8_t { waiting, restoring, joined, active, isolated };

  int node = 0, number = 0;
  std::string incarnation;
  double paused_until = 0;
  Isolation isolation{0, 0};
  double register_at = 0, coordinator_at = 0;  // when it really received something
  Phase phase = Phase::waiting;
  int64_t revision = 0;  // of the newest record that it knows
  SimRecord record;
  int64_t epoch = -1;  // in which it is, or was
  int slot = -1;       // -1: none
  double entered_at = 0;
  int64_t step = 0;
  bool saves = false;
  std::vector<SimHolding> held;
  uint32_t joined = 0;  // coordinator: slots
  std::array<double, max_sim_nodes> member_at{};
  double beat_at = 0;
  std::optional<SimCall> call;
  int64_t calls = 0;
  double read_at = 0;
  // Its question which processes are there.
  double gathers_until = 0, gathered_at = 0, waits_until = 0;
  int64_t question = 0;
  std::vector<SimReport> reports;

  bool is_coordinator() const { return slot == 0 && phase != Phase::isolated; }
  bool is_in_epoch() const {
    return phase == Phase::restoring || phase == Phase::joined || phase == Phase::active;
  }
};

class SimWorld {
 public:
  SimWorld(unsigned seed, SimBug bug);

  // Returns what went wrong; empty if nothing did.
  std::string run();
  const SimOracle& oracle() const { return oracle_; }

 private:
  using Kind = SimMessage::Kind;
  using Phase = SimProcess::Phase;
  struct Item {
    double at;
    uint32_t order, message;
    bool operator<(const Item& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Node {
    std::optional<SimProcess> process;
    double wall_offset = 0;  // of its clock that can be set
  };
  struct Link {
    double blocked_until = 0;
  };

  // ---- time, chance, network
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() % 65536) / 65536;
  }
  bool happens(double share) { return uniform(0, 1) < share; }
  int any(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  void at(double time, SimMessage message);
  void send(SimMessage message);
  void deliver(SimMessage& message);
  bool is_faulty() const { return now_ < calm_at_; }
  Link& link(int from, int to) { return links_[static_cast<size_t>(from * 6 + to)]; }

  // ---- faults
  void plan_faults();
  void fault(int64_t number);
  void calm_down();
  void pause(int address, double seconds);
  void block(int from, int to, double seconds);
  void start_process(int node);
  void end_process(int node);
  void lose_power_of_register();
  void start_register();

  // ---- the register
  void serve(const SimMessage& call);
  SimMessage answer_to(const SimMessage& call);
  bool has_stopped();

  // ---- the processes' data
  void finish_step();
  bool trains(const SimProcess& process) const;
  void gets(SimProcess& process, const SimHolding& holding);
  // Returns whether a process that runs has the state of a slot.
  bool has_holder(const SimHolding& holding) const;

  // ---- a process (sim_process.cpp, sim_epochs.cpp)
  void tick(SimProcess& process);
  void look_at_isolation(SimProcess& process);
  void look_at_group(SimProcess& process);
  void look_at_register(SimProcess& process);
  void look_for_commit(SimProcess& process);
  double patience(const SimProcess& process) const;
  void receive(SimProcess& process, const SimMessage& message);
  void receive_answer(SimProcess& process, const SimMessage& message);
  void receive_member(SimProcess& process, const SimMessage& message);
  void receive_beat(SimProcess& process, const SimMessage& message);
  void report_to(SimProcess& process, const SimMessage& question);
  void restored(SimProcess& process, int64_t epoch);
  void call_register(SimProcess& process, std::optional<SimProposal> proposal);
  void send_call(SimProcess& process);
  void learn(SimProcess& process, int64_t revision, SimRecord record);
  void enter(SimProcess& process, int slot);
  void leave(SimProcess& process);
  void form(SimProcess& process);
  void activate(SimProcess& process);
  void gather(SimProcess& process);
  void propose(SimProcess& process);
  // None if too few processes are there. Sets which they are, by slot.
  std::optional<EpochChange> change_of(const SimProcess& process,
                                       std::vector<int>& processes) const;
  base::Result<RunRecord> successor(const SimProcess& process, const EpochChange& change) const;
  void commit_step(SimProcess& process, const SimMessage& written);
  double clock_of(const SimProcess& process) const;
  void hear_coordinator(SimProcess& process);
  ResumePoint resume_point(const SimProcess& process) const;
  SimMessage from(const SimProcess& process, Kind kind) const;

  SimProcess* process_of(int node) {
    auto& process = nodes_[static_cast<size_t>(node)].process;
    return process ? &*process : nullptr;
  }

  double now_ = 0;
  SimOracle oracle_{now_};
  std::mt19937 random_;
  const SimBug bug_;
  const SimTimes times_;
  int slots_ = 0, node_count_ = 0;
  double calm_at_ = 0;  // when faults end
  double bad_network_until_ = 0;
  std::array<Link, 36> links_{};
  std::array<Node, max_sim_nodes> nodes_;
  int processes_ = 0;  // that were started

  SimDisk disk_;
  std::unique_ptr<JournalRegister> register_;
  double register_paused_until_ = 0;
  int64_t request_tries_ = 0;  // of a planted bug
  int64_t questions_ = 0;

  std::priority_queue<Item> queue_;
  std::vector<SimMessage> messages_;
  std::vector<uint32_t> free_;
  uint32_t order_ = 0;
};

}  // namespace trireme::comm
