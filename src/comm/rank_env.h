// SPDX-License-Identifier: Apache-2.0
// Which rank this process is, from what its launcher put into the environment: ours, torchrun, Open
// MPI, MPICH or Intel MPI, Slurm. Pure: the environment comes in as a table.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::comm {

using Environment = std::map<std::string, std::string>;

enum class RankSource : uint8_t { none, trireme, torchrun, open_mpi, pmi, slurm };
const char* name_of(RankSource source);  // "torchrun"

struct RankInfo {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // on this node
  int node = 0;
  RankSource source = RankSource::none;
  std::string store;          // address for open_store(); empty with one rank
  std::string token;          // identifies job and attempt to the store; empty: unknown
  bool hosts_store = false;   // this process runs the StoreServer, on the port of `store`
  bool is_watched = false;    // a launcher of ours sees how ranks end and says whose fault it was
  bool has_launcher = false;  // the parent process is a launcher, whose end is the job's
  double deadline_s = 0;      // that the launcher was given; 0: none
  bool debug = false;         // debug_from() of the environment
  std::string flight_folder;  // where flight records go on an abnormal end; empty: not said
  const std::atomic<bool>* stop = nullptr;  // set by the caller: waiting for others ends when true
  std::vector<std::string> nodes;           // that the job has, where the environment tells (Slurm)
  std::vector<std::string> warnings;

  // "rank 3 of 8, local rank 1 of 2 on node 1, from torchrun; store at node1:29501;
  // 2 nodes: node1, node2".
  std::string text() const;
};

// Throws ConfigError, with what was found, where no rank can be made of it. Launchers are believed
// in this order: ours, torchrun, MPI, Slurm; one that says something else becomes a warning.
RankInfo detect_rank(const Environment& environment);

// TRIREME_COMM_DEBUG: 1 asks for Communicator::Options::debug in all groups of a run, of processes
// and of threads. Throws ConfigError.
bool debug_from(const Environment& environment);

// "gpu[001-003,007],login1" -> gpu001 gpu002 gpu003 gpu007 login1. Throws ConfigError.
std::vector<std::string> expand_node_list(const std::string& text);

// How ours tells a rank what it is.
Environment environment_for(const RankInfo& info);

}  // namespace trireme::comm
