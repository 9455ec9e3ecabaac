// SPDX-License-Identifier: Apache-2.0
// The way of a run of processes from one epoch to the next, where `trireme launch` replaces ranks
// that were lost. Launchers and ranks speak through keys of the run in its store, which belong to
// no epoch:
//
//   1. An epoch has a verdict. The launcher of node 0 settles its course: regroup, or end.
//   2. Ranks that live end their groups, keep their state, and report that they have left. Every
//      launcher starts a process for each rank of its node that is lost, and reports that its node
//      is ready. The ranks of a node that is lost itself are placed on others, by node 0.
//   3. When all nodes that are left are ready, node 0 forms the next epoch; all ranks enter it.
//      Until then new processes wait: the first that enters an epoch ends the ones below.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/store/store.h"
#include "comm/world/rank_env.h"

namespace trireme::comm {

enum class Course : uint8_t { end, regroup };

// Handles of a store that have entered no epoch.
class EpochKeys {
 public:
  // The store must outlive it.
  explicit EpochKeys(Store& store) : store_(store) {}

  // What follows the epoch. One launcher sets it, once.
  void set_course(int64_t epoch, Course course);
  std::optional<Course> course(int64_t epoch);

  void rank_has_left(int64_t epoch, int rank);
  // Returns which of the ranks have reported so.
  std::vector<bool> have_left(int64_t epoch, std::span<const int> ranks);
  // `placement`: the version of the one that the node is ready with.
  void node_is_ready(int64_t next_epoch, int64_t placement, int node);
  bool are_ready(int64_t next_epoch, int64_t placement, std::span<const int> nodes);
  void form(int64_t epoch);
  bool is_formed(int64_t epoch);
  // Waits at most for this time.
  bool wait_until_formed(int64_t epoch, double seconds);

  // Where ranks run, in the launchers' words; none: as at the start. Node 0 sets it.
  void set_placement(const std::string& text);
  std::optional<std::string> placement();
  // How many spares wait on each of the nodes, as it reports.
  void set_spares(int node, int spares);
  std::vector<int> spares(int nodes);

  // The rank that a spare process becomes.
  struct Part {
    int rank = 0, local_rank = 0;
    int64_t epoch = 0;
    // As in RankInfo; the spare has inherited them.
    int memory_fd = -1, peer_memory_fd = -1;
  };
  void give_part(const std::string& spare, const Part& part);
  // Waits at most for this time.
  std::optional<Part> part_of(const std::string& spare, double seconds);

 private:
  Store& store_;
};

// Waits until the epoch of `info` is formed (RankInfo::joins). Throws Stopped when info.stop is
// set, and CommAborted when the store is gone.
void await_formation(const RankInfo& info);
// Waits until the spare process (RankInfo::spare) is given a part, and returns it as that rank.
// Throws as await_formation().
RankInfo await_part(RankInfo info);
// Returns RankInfo::next_epoch for a rank of such a run: it reports that the rank has left its
// epoch, and waits for the next one. None if the run ends; throws Stopped when info.stop is set.
std::function<std::optional<RankInfo>()> next_epoch_of(const RankInfo& info);

}  // namespace trireme::comm
