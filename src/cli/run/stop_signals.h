// SPDX-License-Identifier: Apache-2.0
// StopSignals: signals, and the death of a launcher, as requests to a run.
//
//   SIGTERM, SIGINT, SIGUSR2, SIGXCPU, SIGHUP    finish the step, save, end
//   SIGUSR1                                      save and go on
//   SIGPIPE                                      ignored: a log without a reader ends no run
//
// Launchers deliver one request several times, so a second one changes nothing; only a SIGINT that
// comes 3 s or more after the first, as from a person at a terminal, ends the process at once.
// SIGHUP is left alone where it was ignored at the start (nohup).
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace trireme::cli {

// Second SIGINTs that come sooner are repetitions of the first.
constexpr double repeat_seconds = 3;

class StopSignals {
 public:
  // Installs the handlers, which stay for the rest of the process. One at a time.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>* stop() const;
  std::atomic<bool>* save() const;

  // From here on the end of the process that started this one is a request to stop.
  void watch_parent();

 private:
  std::mutex mutex_;  // guards is_ending_
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread watch_;
};

// Ignores SIGPIPE: writing to a pipe without a reader is then an error of the call.
void ignore_broken_pipes();

}  // namespace trireme::cli
