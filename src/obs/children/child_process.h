// SPDX-License-Identifier: Apache-2.0
// ChildProcess: a program that a run starts beside itself: the reader of its metrics, or the
// receiver of an alert. It is in a separate process group, so that Ctrl-C in a terminal reaches
// the run only, and what it prints goes to the standard error of the run.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace trireme::obs {

class ChildProcess {
 public:
  struct Start {
    std::vector<std::string> words;        // program, searched for in PATH, and arguments
    std::vector<std::string> environment;  // "NAME=value"
    int input = -1;                        // descriptor of its standard input; -1: /dev/null
  };
  // Throws IoError if the program cannot be started.
  explicit ChildProcess(const Start& start);
  // Ends it: SIGTERM to its process group, and SIGKILL a little later, if it still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&&) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t id() const { return process_; }
  bool is_running();
  // Waits for its end at most so long. Returns whether it has ended.
  bool wait(double seconds);
  // Returns how it ended: "exit code 1", "signal 9". REQUIRES: it has ended.
  std::string ending() const;
  bool is_good() const { return status_ && *status_ == 0; }
  // Returns the exit code; 128 and its number for a signal. REQUIRES: it has ended.
  int exit_code() const;

 private:
  pid_t process_ = -1;
  std::optional<int> status_;  // of waitpid
};

// Returns the words that run a command in a shell.
std::vector<std::string> shell_words(const std::string& command);

}  // namespace trireme::obs
