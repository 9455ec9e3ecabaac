// SPDX-License-Identifier: Apache-2.0
// Which rank this process is, from what its launcher put into the environment: ours, torchrun, Open
// MPI, MPICH or Intel MPI, Slurm. Pure: the environment comes in as a table.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme::comm {

class ProcessWorld;

using Environment = std::map<std::string, std::string>;

enum class RankSource : uint8_t { none, trireme, torchrun, open_mpi, pmi, slurm };
const char* name_of(RankSource source);  // "torchrun"

struct RankInfo {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // on this node
  int node = 0;
  RankSource source = RankSource::none;
  // Address for open_store(). Empty with one rank, and where rendezvous() (comm/world/rendezvous.h) finds
  // it: by PMI on `pmi_descriptor`, or not at all, for the reason `store_problem`.
  std::string store;
  int pmi_descriptor = -1;
  std::string store_problem;
  // The store may also be on one of the next ports, this many: torchrun gives the job one port, on
  // which it listens itself, and the one after may be another program's.
  int more_ports = 0;
  std::string host_name;          // by which the launcher reaches this host; empty: not known
  std::string token;              // identifies job and attempt to the store; empty: unknown
  bool has_secret_token = false;  // it is random, or the user's: no stranger can guess it
  bool hosts_store = false;       // this process runs the StoreServer, on the port of `store`
  bool is_watched = false;    // a launcher of ours sees how ranks end and says whose fault it was
  bool has_launcher = false;  // the parent process is a launcher, whose end is the job's
  double deadline_s = 0;      // that the launcher was given; 0: none
  bool debug = false;         // debug_from() of the environment
  int cpu_threads = 0;        // threads_from() of the environment
  std::string error_file;     // where torchrun reads why this rank failed; empty: nowhere
  std::string flight_folder;  // where flight records go on an abnormal end; empty: not said
  const std::atomic<bool>* stop = nullptr;  // set by the caller: waiting for others ends when true
  // Set by the caller: called on every rank of a run that fails after it has begun, while the store
  // is still there.
  std::function<void(ProcessWorld&, const std::exception&)> failed;
  std::vector<std::string> nodes;  // that the job has, where the environment tells (Slurm)
  std::vector<std::string> warnings;

  // "rank 3 of 8, local rank 1 of 2 on node 1, from torchrun; store at node1:29501;
  // 2 nodes: node1, node2".
  std::string text() const;
};

// Throws ConfigError, with what was found, where no rank can be made of it. Launchers are believed
// in this order: ours, torchrun, MPI, Slurm; one that says something else becomes a warning. PMI
// variables that Slurm itself set (srun --mpi=pmi2) are no launcher of their own.
RankInfo detect_rank(const Environment& environment);

// For runs on several hosts whose token is not secret.
inline constexpr const char* guessable_token_note =
    "the store is open to hosts that guess this job's token, which follows from its name; set "
    "TRIREME_TOKEN to a secret, the same for all ranks, on a network that others use";

// TRIREME_COMM_DEBUG: 1 asks for Communicator::Options::debug in all groups of a run, of processes
// and of threads. Throws ConfigError.
bool debug_from(const Environment& environment);

// OMP_NUM_THREADS: the threads that a process is given, which launchers set, too; of a list, one
// for each level of nesting, the first. 0: not said. What is no number becomes a warning.
int threads_from(const Environment& environment, std::vector<std::string>& warnings);

// "gpu[001-003,007],login1" -> gpu001 gpu002 gpu003 gpu007 login1. Throws ConfigError.
std::vector<std::string> expand_node_list(const std::string& text);

// How ours tells a rank what it is.
Environment environment_for(const RankInfo& info);

}  // namespace trireme::comm
