// SPDX-License-Identifier: Apache-2.0
// Player: does to the processes of a run what a history says, starts the job again after stops, and
// leaves a run that has ended.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/histories/history.h"

namespace trireme::tests {

inline constexpr int exit_done = 0, exit_bad_call = 2, exit_stopped = 75;

class Player {
 public:
  // The folder has the history's files. Both must outlive it.
  Player(const Scratch& folder, const History& history) : folder_(folder), history_(history) {}
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Plays it to the end of the run. Returns what went wrong with the processes; empty: nothing.
  std::string play();
  int done() const { return done_; }  // happenings for which the run was still there
  // What the launchers printed, with a line for everything that was done.
  const std::string& log() const { return log_; }

 private:
  struct Processes {
    pid_t supervisor = 0, guardian = 0;
    std::map<int, pid_t> ranks;
    std::vector<pid_t> spares;
  };
  Processes processes() const;
  int64_t newest_step() const;
  void start();
  bool wait_until_due(const Happening&);
  std::string do_one(const Happening&);  // what went wrong
  void harm_ranks(const Happening&);
  std::string end_of_start(bool was_stopped);
  void kill_everything();
  void note(const std::string& text);

  const Scratch& folder_;
  const History& history_;
  std::unique_ptr<Running> running_;
  bool is_code_known_ = true;  // the first guardian of this start lives
  int64_t newest_ = 0;         // when something happened last
  int done_ = 0;
  size_t read_ = 0;  // of the running launcher's lines, in log_
  std::string log_;
};

}  // namespace trireme::tests
