// SPDX-License-Identifier: Apache-2.0
// Changeover: a launcher's part in the way of a job from one epoch to the next
// (comm/world/epochs.h). Node 0 settles what follows a verdict, places the ranks of lost nodes, and
// forms the next epoch; the others act on what stands in the store.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/crew.h"
#include "agent/job.h"
#include "agent/rules/launcher_watch.h"
#include "agent/rules/placement.h"
#include "agent/rules/policy.h"
#include "agent/store/run_register.h"
#include "base/text/json.h"
#include "comm/failure/verdict.h"
#include "comm/store/membership.h"
#include "comm/store/store.h"
#include "comm/world/epochs.h"

namespace trireme::agent {

class Changeover {
 public:
  // Options and crew must outlive it.
  Changeover(const JobOptions& options, Crew& crew);
  // The store of the run, in no epoch, and on node 0 its register, null: none. They must outlive
  // this object. Before all below.
  void use(comm::Store& run_store, RunRegister* run_register) {
    store_ = &run_store;
    register_ = run_register;
  }

  int64_t epoch() const { return epoch_; }
  const Placement& placement() const { return placement_; }
  std::vector<int> nodes() const { return placement_.nodes_left(options_.all_nodes()); }
  std::vector<int> nodes_with_ranks() const;
  // Why the run is given up, or has to be started again elsewhere; may be empty.
  const std::string& given_up() const { return given_up_; }
  const std::string& lost_host() const { return lost_host_; }

  // ---- for a supervisor after this one
  base::Json kept() const;
  // Goes on from what kept() has returned, in the epoch that the store has.
  void go_on(const base::Json& kept);
  void begin(int64_t saved) { saved_ = saved; }
  // The first epoch of a start stands in the register from then on. Throws IoError.
  void record_start();

  // ---- while an epoch runs
  // Reports how many spares wait here, if that has changed.
  void tell_spares();
  // Returns which nodes are lost, as far as this one sees. Of those that have no ranks,
  // node 0 takes note.
  std::vector<int> lost_nodes(comm::Membership& membership, double now, bool judges_silence);
  // Returns what follows the verdict of this epoch; none: node 0 has not settled it.
  std::optional<comm::Course> course_after(const comm::Verdict& verdict,
                                           std::span<const comm::RankReport> reports);

  // ---- between two epochs
  using Give = std::function<void(Event)>;
  // Gives the events that the store, the crew and the membership of the epoch tell.
  void look(comm::Membership& membership, double now, bool judges_silence, const Give& give);
  // Takes ranks that node 0 has placed here. Throws Fenced if the others go on without this node.
  void follow_placement();
  // Replaces what has ended here. Returns false if that leads nowhere.
  bool replace_ended();
  void kill_late();
  void tell_ready();
  // Not if the register cannot write its record: then it is to be called again.
  void form();
  // The next epoch has begun. Returns the ranks of this node that are new processes in it.
  std::vector<int> enter();

 private:
  comm::EpochKeys keys() const { return comm::EpochKeys(*store_); }
  void settle_course(const comm::Verdict& verdict, std::span<const comm::RankReport> reports);
  // Puts down the number in the record where the ranks of an epoch find it.
  void set_record_epoch(int64_t epoch, int64_t number);
  // Returns false if there are too few spares.
  bool move_ranks_of(std::span<const int> lost);

  const JobOptions& options_;
  Crew& crew_;
  comm::Store* store_ = nullptr;
  RunRegister* register_ = nullptr;
  std::string reason_;             // of the next epoch
  double register_failed_at_ = 0;  // when that was logged last; 0: never
  int64_t epoch_;
  Placement placement_;
  LauncherWatch watch_;
  int64_t ready_with_ = -1;  // the version of the placement with which this node is; -1: it is not
  int told_spares_ = -1;
  double verdict_seen_ = 0;  // whose course is not known yet
  std::string given_up_, lost_host_;
  // ---- on node 0: EpochFacts
  int64_t reached_ = -1, saved_ = -1, fruitless_ = 0;
};

}  // namespace trireme::agent
