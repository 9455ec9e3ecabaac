// SPDX-License-Identifier: Apache-2.0
// The processes of `trireme launch`: starts them, forwards their output by line, and detects when
// they end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/guardian/keeper.h"
#include "agent/signals.h"
#include "base/system/descriptor.h"
#include "base/text/json.h"
#include "comm/world/rank_env.h"

namespace trireme::agent {

// How a process ended.
struct Ending {
  static constexpr int unknown_signal = -1;

  int exit_code = 0;
  // That killed it; 0: it exited. Unknown of a process that the supervisor before this one started.
  int signal = 0;

  bool is_good() const { return exit_code == 0 && signal == 0; }
  // "was killed by signal 9 (SIGKILL)", "ended with exit code 3".
  std::string text() const;
};
std::string signal_name(int number);  // "SIGKILL"

class RankProcesses {
 public:
  // Receives a line of stdout or stderr without its newline. A line longer than about
  // max_line_bytes is passed in parts.
  static constexpr size_t max_line_bytes = size_t{1} << 20;
  using OnLine = std::function<void(int rank, bool is_error, std::string_view line)>;

  // While the object lives, SIGUSR1 and the signals that request a stop (docs/stopping.md) are
  // input of wait(); SIGHUP stays ignored if it was. REQUIRES: one object at a time.
  // The keeper has all processes for a supervisor after this one; those of one before it are here
  // from the beginning. It must outlive this object.
  RankProcesses(OnLine on_line, Keeper& keeper);
  // Kills the processes that still run.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Starts a rank as the leader of a new process group, so that it does not receive a terminal's
  // Ctrl-C twice. The rank inherits info.life_line, which this call sets, and `inherited`, by their
  // own numbers, and has `environment`
  // beside the variables of `info`. Throws IoError; throws ConfigError before the first rank if the
  // limit of descriptors is too low for all of them.
  // `known_as`: its number in calls of this class, if it is not that of the rank. `facts`: about
  // the process, for facts_of().
  void start(comm::RankInfo info, std::vector<std::string> command,
             comm::Environment environment = {}, std::optional<int> known_as = std::nullopt,
             std::span<const int> inherited = {}, base::Json facts = {});

  // Handles output, ends of ranks and signals for at most this time. Returns the signals that this
  // process received.
  std::vector<int> wait(double seconds);

  struct State {
    int rank = 0;
    std::optional<Ending> ending;
    int departure = -1;  // its place in the order in which ranks ended
    int stopped_by = 0;  // the signal that has stopped (paused) it; 0: it is not stopped
  };
  std::vector<State> states() const;
  // Finds which ranks are stopped, which no descriptor reports.
  void look_for_stops();
  bool is_running() const;
  // Sends a signal to the process group of a rank, or of all ranks; ranks that ended are skipped.
  void signal(int number, std::optional<int> rank = std::nullopt);
  // Forwards what is still in the pipes. To be called when all ranks have ended.
  void drain();
  // Forwards what is still in the pipes of a process that has ended, and forgets it, so that
  // another may be started as the same rank.
  void forget(int rank);
  // From now on this process is that rank.
  void rename(int rank, int new_rank, base::Json facts = {});
  const base::Json& facts_of(int rank) const;
  // The id of the process of a rank; 0: it has ended.
  pid_t id_of(int rank) const;

 private:
  struct Pipe {
    base::Descriptor read, write;
  };
  struct Stream {
    base::Descriptor pipe;
    bool is_error;
    bool is_open = true;
    std::string rest;
  };
  struct Process {
    int rank;
    pid_t id;
    int slot;                     // of its exit code in endings_
    bool is_child;                // not started by a supervisor before this one
    base::Descriptor descriptor;  // readable when the process has ended; -1: the kernel has none
    Stream out, err;
    base::Json facts;
    std::optional<Ending> ending;
    int departure = -1;
    int stopped_by = 0;
  };

  static Pipe make_pipe();
  Pipe life_line();
  base::Descriptor endings_file();
  // As the supervisor before this one left them.
  void adopt();
  void keep(const Process& process);
  // Waits for a process that was not started by this one.
  void look_at(Process& process, bool looks_for_stops);
  void drain(Process& process);
  void read(Process& process, Stream& stream);
  void reap(Process& process, int options);

  OnLine on_line_;
  Keeper& keeper_;
  SignalQueue signals_;
  // The kernel closes the writing end when this process ends in any way, at any time: ranks inherit
  // the reading end alone.
  Pipe life_line_;
  // A file in memory, in which a process leaves its exit code (comm/world/rank_env.h).
  base::Descriptor endings_;
  int slots_ = 0;
  std::list<Process> processes_;
  int departures_ = 0;
};

}  // namespace trireme::agent
