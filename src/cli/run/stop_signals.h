// SPDX-License-Identifier: Apache-2.0
// StopSignals: signals, and the death of a launcher, as requests to a run.
//
//   SIGTERM, SIGINT, SIGUSR2, SIGXCPU, SIGHUP    finish the step, save, end
//   SIGUSR1                                      save and continue
//   SIGPIPE                                      ignored: a log without a reader must not end a run
//
// Launchers deliver one request several times, so a second one changes nothing; only a SIGINT that
// arrives 3 s or more after the first, as from a user at a terminal, ends the process at once.
// SIGHUP stays ignored if it was ignored at the start (nohup).
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "agent/rules/policy.h"

namespace trireme::cli {

// A SIGINT that arrives sooner after the first is taken as a repetition of it.
constexpr double repeat_seconds = agent::PolicyLimits{}.insist;

class StopSignals {
 public:
  // Installs the handlers, which stay for the rest of the process. REQUIRES: one object at a time.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>* stop() const;
  std::atomic<bool>* save() const;

  // From now on, the end of the parent process is a request to stop. `life_line`: the reading end
  // of a pipe whose only writing end the launcher holds; -1: none. It also shows that the launcher
  // ended before this call, when another process was the parent already.
  void watch_launcher(int life_line);

 private:
  std::mutex mutex_;  // guards is_ending_
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread watch_;
};

// Ignores SIGPIPE: writing to a pipe without a reader is then an error of the call.
void ignore_broken_pipes();

}  // namespace trireme::cli
