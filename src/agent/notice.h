// SPDX-License-Identifier: Apache-2.0
// NoticeWatch: receives the notice that this machine is about to be taken away, as machines of the
// spot market and some schedulers give it: a file that appears, or a command that ends with exit
// code 0. One process of a node watches: the launcher, or without one the first rank of the node.
// Nothing of it is on the path of a step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trireme::agent {

struct NoticeOptions {
  std::string file;                      // empty: none
  std::string command;                   // for a shell; empty: none
  std::vector<std::string> environment;  // of the command, "NAME=value"
  double file_seconds = 0.25;            // between two looks at the file
  double command_seconds = 2;            // between two starts of the command
  double timeout_seconds = 5;            // a command that takes longer is ended, and is no notice
  bool stops = true;                     // a notice sends SIGTERM to this process
};

struct Notice {
  std::string source;  // "file" or "command"
  std::string what;    // its path or words
  double time = 0;     // seconds since 1970
};
// "the notice file /run/spot has appeared".
std::string text_of(const Notice&);

class NoticeWatch {
 public:
  // When the first notice arrives, calls `on_notice`, on a separate thread, and sends SIGTERM to
  // this process, as a scheduler would, as soon as the process handles it: between two starts of a
  // job it does not, and would be killed. A file that exists now is a notice only when its time
  // changes or another file takes its place. The command is run once before the constructor
  // returns, and another time every command_seconds. Its output is dropped. Throws ConfigError if
  // the shell cannot start it (exit code 126 or 127).
  NoticeWatch(NoticeOptions options, std::function<void(const Notice&)> on_notice);
  // Ends a command that still runs.
  ~NoticeWatch();
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

 private:
  // What distinguishes a file from the one that was there before; none: there is no file.
  struct Stamp {
    uint64_t device = 0, inode = 0;
    int64_t seconds = 0, nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  static std::optional<Stamp> stamp_of(const std::string& path);
  enum class Answer { notice, none, not_startable };
  Answer ask();  // runs the command

  void watch();
  void stop_process();
  bool has_file_notice();
  bool waits(double seconds);  // returns false when the object ends

  const NoticeOptions options_;
  const std::function<void(const Notice&)> on_notice_;
  std::optional<Stamp> known_;
  bool has_notice_ = false;  // by the first run of the command

  std::mutex mutex_;  // guards is_ending_
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace trireme::agent
