// SPDX-License-Identifier: Apache-2.0
// The processes of `trireme launch`: started, their output passed on by line, their ends noticed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/descriptor.h"
#include "comm/world/rank_env.h"

namespace trireme::cli {

// How a process ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;  // 0: by itself

  bool is_good() const { return exit_code == 0 && signal == 0; }
  // "was killed by signal 9 (SIGKILL)", "ended with exit code 3".
  std::string text() const;
};
std::string signal_name(int number);  // "SIGKILL"

class RankProcesses {
 public:
  // A line without its end, of stdout or stderr. A longer one than about max_line_bytes comes in
  // parts.
  static constexpr size_t max_line_bytes = size_t{1} << 20;
  using OnLine = std::function<void(int rank, bool is_error, std::string_view line)>;

  // SIGCHLD, SIGUSR1 and the signals that ask to stop (stop_signals.h) become input of wait() as
  // long as it lives; SIGHUP not where it was ignored. One at a time.
  explicit RankProcesses(OnLine on_line);
  // Ends what still runs.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Each rank leads a process group of its own, so that a terminal's Ctrl-C does not reach it
  // twice. Throws IoError; ConfigError, before the first, where the limit of descriptors does not
  // suffice for all of them.
  void start(const comm::RankInfo& info, std::vector<std::string> command);

  // True once a signal has asked this process to stop.
  static const std::atomic<bool>* stop();

  // Handles what comes within the time. Returns the signals that this process got, without SIGCHLD.
  std::vector<int> wait(double seconds);

  struct State {
    int rank = 0;
    std::optional<Ending> ending;
    int departure = -1;  // the how-manyth that ended
    int stopped_by = 0;  // the signal that it is stopped by; 0: it is not
  };
  std::vector<State> states() const;
  bool is_running() const;
  // To the rank's process group; all of them without a rank. Those that ended are passed over.
  void signal(int number, std::optional<int> rank = std::nullopt);
  // What is still in the pipes; to be called when all have ended.
  void drain();

 private:
  struct Stream {
    base::Descriptor pipe;
    bool is_error;
    bool is_open = true;
    std::string rest;
  };
  struct Process {
    int rank;
    pid_t id;
    Stream out, err;
    std::optional<Ending> ending;
    int departure = -1;
    int stopped_by = 0;
  };

  void read(Process& process, Stream& stream);
  void reap();

  OnLine on_line_;
  base::Descriptor signals_;
  std::list<Process> processes_;
  int departures_ = 0;
};

}  // namespace trireme::cli
