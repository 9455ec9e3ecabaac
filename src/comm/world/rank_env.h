// SPDX-License-Identifier: Apache-2.0
// Determines which rank this process is from the environment variables of its launcher: trireme
// launch, torchrun, Open MPI, MPICH or Intel MPI, Slurm. Pure: the environment is an argument.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::comm {

class ProcessWorld;

using Environment = std::map<std::string, std::string>;

enum class RankSource : uint8_t { none, trireme, torchrun, open_mpi, pmi, slurm };
const char* name_of(RankSource source);  // "torchrun"

// A node of a run that survives failures stops within this time if it does not reach the store any
// more: the others may have gone on without it.
constexpr double isolate_seconds = 30;
constexpr double outage_seconds = isolate_seconds - 2;  // then its ranks are ended

struct RankInfo {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // on this node
  int node = 0;
  int64_t epoch = 0;  // of the run; processes of lower ones are refused by the store
  // The launcher replaces ranks that are lost, and this process may outlive its group (epochs.h).
  bool is_elastic = false;
  // So long its store may be away: the launcher that runs it is started again if it dies.
  double outage_s() const { return is_elastic ? outage_seconds : 0; }
  bool joins = false;  // the process replaces another one: it waits until the epoch is formed
  std::string spare;   // names a process that waits for a rank to replace; empty: it is a rank
  RankSource source = RankSource::none;
  // Address for open_store(). Empty with one rank that `trireme launch` does not watch, and if
  // rendezvous() (comm/world/rendezvous.h) finds it: by PMI on `pmi_descriptor`, or not at all, for
  // the reason `store_problem`.
  std::string store;
  int pmi_descriptor = -1;
  std::string store_problem;
  // The store may also be on one of this many following ports: torchrun gives the job one port, on
  // which it listens itself, and another program may use the next one.
  int more_ports = 0;
  std::string host_name;          // by which the launcher reaches this host; empty: unknown
  std::string token;              // identifies job and attempt to the store; empty: unknown
  bool has_secret_token = false;  // it is random or set by the user, so others cannot guess it
  bool knows_attempt = true;      // processes of an earlier attempt have another token
  std::string run_folder;         // set by the caller: shared by all ranks; empty: none
  bool hosts_store = false;       // this process runs the StoreServer, on the port of `store`
  bool is_watched = false;        // `trireme launch` watches how ranks end and reports the culprit
  bool has_launcher = false;      // the parent process is a launcher; the job ends with it
  int life_line = -1;             // a pipe that is closed when `trireme launch` ends; -1: none
  double deadline_s = 0;          // given to the launcher; 0: none
  bool debug = false;             // debug_from() of the environment
  int cpu_threads = 0;            // threads_from() of the environment
  std::string error_file;         // where torchrun reads why this rank failed; empty: none
  std::string flight_folder;      // for flight records of an abnormal end; empty: not set
  const std::atomic<bool>* stop = nullptr;  // set by the caller; waiting ends when it becomes true
  // Set by the caller. Called on every rank of a run that fails after it has begun, while the store
  // still exists.
  std::function<void(ProcessWorld&, const std::exception&)> failed;
  // Set by the caller of a process that outlives its group. Called after the epoch was aborted;
  // waits for the next one, and returns the same rank in it, or none if the process is to end. The
  // run of a later epoch continues that of the first: all ranks of a run set it, or none.
  std::function<std::optional<RankInfo>()> next_epoch;
  // Memory for copies of this rank's training state, which `trireme launch` holds, too, and gives
  // to the process that replaces this one (ckpt/memory/copy_memory.h): a descriptor; -1: none.
  int memory_fd = -1;
  // The same for copies of other ranks' states, which this rank keeps for them (kept_copies.h).
  int peer_memory_fd = -1;
  // Set by the launcher: a file in memory in which the process leaves its exit code, plus 1, at
  // ending_offset(). A launcher that did not start the process cannot learn it otherwise. -1: none.
  int ending_fd = -1;
  int ending_slot = 0;

  std::vector<std::string> nodes;  // of the job, if the environment lists them (Slurm)
  std::vector<std::string> warnings;

  // "rank 3 of 8, local rank 1 of 2 on node 1, from torchrun; store at node1:29501;
  // 2 nodes: node1, node2".
  std::string text() const;
};

constexpr const char* ending_variable = "TRIREME_ENDING";  // "ending_fd/ending_slot"
constexpr int64_t ending_offset(int slot) { return int64_t{slot} * int64_t{sizeof(int32_t)}; }

// Throws ConfigError, with the values found, if they are inconsistent. Launchers have this
// priority: trireme launch, torchrun, MPI, Slurm; a contradicting one becomes a warning. PMI
// variables that Slurm itself has set (srun --mpi=pmi2) do not count as a separate launcher.
RankInfo detect_rank(const Environment& environment);

// Reads TRIREME_COMM_DEBUG: 1 enables Communicator::Options::debug in all groups of a run, of
// processes and of threads. Throws ConfigError.
bool debug_from(const Environment& environment);

// Reads OMP_NUM_THREADS, the number of threads of a process, which launchers also set; if it is a
// list, one for each level of nesting, the first. 0: not set. A text that is not a number becomes a
// warning.
int threads_from(const Environment& environment, std::vector<std::string>& warnings);

// "gpu[001-003,007],login1" -> gpu001 gpu002 gpu003 gpu007 login1. Throws ConfigError.
std::vector<std::string> expand_node_list(const std::string& text);

// Returns the variables with which `trireme launch` starts a rank.
Environment environment_for(const RankInfo& info);

}  // namespace trireme::comm
