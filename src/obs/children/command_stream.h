// SPDX-License-Identifier: Apache-2.0
// CommandStream: passes lines to the standard input of a command, without ever waiting for it. What
// the command does not read fast enough is kept up to a limit, then whole lines are dropped and
// counted. A command that ends is not started again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/descriptor.h"
#include "obs/children/child_process.h"

namespace trireme::obs {

class CommandStream {
 public:
  struct Options {
    std::vector<std::string> environment{};  // "NAME=value"
    size_t max_bytes = size_t{4} << 20;      // that wait to be read
    double grace_seconds = 10;               // at the end, for what is left and for its exit
    // At the end a command that reads nothing for `stall_seconds` is not waited for, unless it was
    // started less than `start_seconds` ago: interpreters take their time.
    double stall_seconds = 2, start_seconds = 10;
  };
  // Starts the command in a shell. Throws IoError.
  CommandStream(const std::string& command, Options options);
  ~CommandStream();  // calls finish()
  CommandStream(const CommandStream&) = delete;
  CommandStream& operator=(const CommandStream&) = delete;

  // Adds complete lines. Never waits.
  void add(std::string_view lines);
  // Passes on what is left, closes the standard input and waits for the end of the command, all
  // within the grace period; then ends it. If the command does not read, it is ended sooner.
  void finish();

  // Lines so far. After finish() it includes those that were passed on since the command had last
  // read everything, if it was ended before it read them.
  int64_t dropped() const { return dropped_; }
  // Returns a human-readable line when the state has changed since the last call: lines are
  // dropped, or the command has ended; otherwise nothing.
  std::optional<std::string> news();

 private:
  void write_some();
  // Waits until everything was read, within the limits of finish(). Returns whether it was.
  bool wait_until_read(double until);
  int64_t unread_bytes() const;  // that were passed on, with the system's overhead
  static int64_t lines_in(std::string_view text);

  const std::string command_;
  const Options options_;
  std::optional<base::Descriptor> input_;  // this end of its standard input; none: closed
  std::optional<ChildProcess> child_;
  std::string waiting_;
  size_t written_ = 0;  // bytes of waiting_
  int64_t dropped_ = 0;
  int64_t passed_lines_ = 0;  // since the command had last read everything
  const double started_;      // in steady seconds
  bool has_ended_ = false, reported_drop_ = false, reported_end_ = false;
};

}  // namespace trireme::obs
