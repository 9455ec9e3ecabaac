// SPDX-License-Identifier: Apache-2.0
// One run of the program with trouble on its machine. The run knows nothing of it, and neither does
// what reads its files afterwards.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "tests/blind/shim_control.h"
#include "tests/cli/program.h"

namespace trireme::tests {

struct BlindSetup {
  int ranks = 2;                     // processes
  std::vector<std::string> options;  // of train
  std::vector<std::string> environment;
  int layers = 4, hidden = 64;  // steps of about 10 ms on a core of 2020
};

class BlindRun {
 public:
  explicit BlindRun(const BlindSetup& setup);
  ~BlindRun();

  ShimControl& machine() { return *control_; }
  const std::filesystem::path& folder() const { return scratch_.path(); }
  // Starts the run and waits for its first steps. Returns false if it ended before.
  bool start();
  // Lets the run go on for so many seconds; calls `disturb`, if there is one, again and again.
  void run_for(double seconds, const std::function<void()>& disturb = {});
  // Asks the run to stop, and waits for its end.
  void stop();
  // Waits for the end of a run that will end by itself.
  void wait() { outcome_ = running_->wait(); }
  // The process of a rank.
  pid_t process_of(int rank) const;
  void signal(int rank, int number) const { ::kill(process_of(rank), number); }
  void signal_all(int number) const;
  const Outcome& outcome() const { return outcome_; }

  // Runs `trireme diagnose --json` on the folder.
  base::Json diagnosis() const;

 private:
  BlindSetup setup_;
  Scratch scratch_;
  ShimControl* control_ = nullptr;
  std::unique_ptr<Running> running_;
  std::vector<pid_t> processes_;  // by rank
  Outcome outcome_;
};

// Stops and continues a process so that it computes for `1 / (1 + slower)` of the time.
class DutyCycle {
 public:
  DutyCycle(pid_t process, double slower, double period_seconds)
      : process_(process), slower_(slower), period_(period_seconds) {}
  void operator()() const;  // one period

 private:
  pid_t process_;
  double slower_, period_;
};

void sleep_seconds(double seconds);

}  // namespace trireme::tests
