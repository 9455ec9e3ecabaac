// SPDX-License-Identifier: Apache-2.0
// Crew: the processes of one node of a job. It starts its ranks, and spares that wait for a rank to
// replace; after a verdict it replaces what is lost, and takes ranks of nodes that are lost.
// processes.json in the run's folder lists them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "agent/guardian/keeper.h"
#include "agent/job.h"
#include "agent/processes/processes.h"
#include "base/system/descriptor.h"
#include "comm/failure/verdict.h"
#include "comm/world/epochs.h"

namespace trireme::agent {

class Crew {
 public:
  struct Address {
    std::string store, token;
  };
  // Options and processes must outlive it.
  Crew(const JobOptions& options, RankProcesses& processes, Keeper& keeper);

  ~Crew();

  // Starts the ranks and spares. Throws IoError, ConfigError.
  void start(const Address& address);
  // Instead: goes on with those that a supervisor before this one has started, in this epoch. Ranks
  // of this node that it did not come to start begin the epoch, or join the next one if that is
  // being formed.
  void go_on(const Address& address, comm::EpochKeys& keys, int64_t epoch, bool joins_next,
             std::span<const int> ranks);
  // Ranks of this node, without spares.
  std::vector<RankProcesses::State> ranks() const;
  pid_t process_of(int rank) const { return processes_.id_of(rank); }
  bool is_rank(int number) const { return number < world_; }
  bool is_any_rank_running() const;
  bool has_ranks() const { return !own_.empty(); }
  int spares() const;  // that wait

  // ---- between two epochs
  // Kills the ranks of this node that the verdict blames: they may hang.
  void kill_blamed(const comm::Verdict& verdict);
  // Starts a process, or names a spare, for every rank that has ended. Returns false if one of them
  // has ended as often as may be in one change of epochs.
  bool replace_ended(comm::EpochKeys& keys, int64_t next_epoch);
  // These ranks run here from now on. Those that do not yet get a process, or a spare.
  void take(comm::EpochKeys& keys, std::span<const int> ranks, int64_t next_epoch);
  // Has every rank left the epoch, or been replaced?
  bool is_ready(comm::EpochKeys& keys, int64_t epoch);
  // Kills the ranks that have not.
  void kill_late(comm::EpochKeys& keys, int64_t epoch);
  // The epoch has begun. Returns the ranks that are new processes in it.
  std::vector<int> enter(int64_t epoch);

  // To be called now and then: replaces spares if the job runs, and writes processes.json.
  void look_after(double now, bool is_running);
  // Whether processes.json was written: the run has begun.
  bool is_listed() const { return !written_.empty(); }

 private:
  void start_rank(int rank, int64_t epoch, bool joins);
  void start_spare();
  // Replaces a rank that has no process.
  void place(comm::EpochKeys& keys, int rank, int64_t next_epoch);
  // The memory that belongs to a rank.
  size_t slot_of(int rank);
  // Has memory for so many ranks.
  void open_memory(size_t slots);
  // Finds what the processes are that were there before this object.
  void adopt(comm::EpochKeys& keys);
  void give_part(comm::EpochKeys& keys, int rank);
  comm::RankInfo info_of(int rank, int64_t epoch) const;
  std::vector<int> old_ranks() const;
  void write_list();

  const JobOptions& options_;
  RankProcesses& processes_;
  Keeper& keeper_;
  const int world_;
  Address address_;
  int64_t epoch_;
  std::vector<int> own_;  // ranks of this node
  // Copies of a rank's state, and those that it keeps for other ranks, outlive the rank.
  struct SlotMemory {
    base::Descriptor own, kept;
  };
  std::vector<SlotMemory> memory_;  // by slot
  std::map<int, size_t> slots_;     // by rank
  std::map<int, int> replaced_;     // in this change of epochs: how often, by rank
  struct Spare {
    std::string name;  // in the store
    // By slot, as the descriptors that it has inherited.
    std::vector<int> memory, kept_memory;
  };
  std::map<int, Spare> spares_;  // by their number in processes_
  int spares_started_ = 0;
  double entered_at_ = 0;
  std::string written_;  // of processes.json
};

}  // namespace trireme::agent
