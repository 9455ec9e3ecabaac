// SPDX-License-Identifier: Apache-2.0
// Runs the built program as a user does: in a new folder and with a deadline; records its exit
// code, stdout and stderr.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"

namespace trireme::tests {

struct Outcome {
  int exit_code = -1;  // 128 + number if a signal ended it; -1: it ran past the deadline
  std::string out, err;
};

// The weights that a run of the tiny configuration writes.
inline const std::string final_weights = "run/weights/final/model.safetensors";

// The contents of every file below a folder, by relative path; paths of folders end in a slash.
using Tree = std::map<std::string, std::string>;

// A temporary folder, which is removed with its contents.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path at(const std::string& name) const { return path_ / name; }
  bool has(const std::string& name) const { return std::filesystem::exists(path_ / name); }
  void write(const std::string& name, std::string_view bytes) const;
  std::string read(const std::string& name) const;
  Tree tree(const std::string& below = "") const;

 private:
  std::filesystem::path path_;
};

struct RunOptions {
  int64_t max_file_bytes = 0;     // limit of the size of files, to simulate a full disk; 0: none
  double deadline_seconds = 300;  // generous: on a loaded machine a second becomes ten
};

// The program while it runs. The destructor kills it if it still runs.
class Running {
 public:
  Running(const std::filesystem::path& folder, std::vector<std::string> command,
          const RunOptions& options = {});
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void signal(int number) const;
  // Waits until holds() returns true; returns false if the program ended before or the deadline
  // passed.
  bool wait_for(const std::function<bool()>& holds);
  Outcome wait();
  // Closes the reading ends of the program's stdout and stderr, like a reader that dies.
  void close_streams();
  bool has_ended();  // the program itself; processes that it started may still run
  pid_t process() const { return process_; }
  const std::string& out() const { return outcome_.out; }  // output so far
  const std::string& err() const { return outcome_.err; }

 private:
  bool read_streams(int wait_ms);  // false once both are closed
  bool is_late() const;

  pid_t process_ = -1;  // -1: its exit code is known
  int out_ = -1, err_ = -1;
  double end_seconds_;
  Outcome outcome_;
};

// Waits until holds() returns true; returns false if it does not within a minute.
[[nodiscard]] bool wait_until(const std::function<bool()>& holds);
// Returns whether the process has installed a handler for the signal.
bool handles(pid_t process, int signal);

// Runs `trireme ARGS...` in the folder.
Outcome trireme(const Scratch& scratch, const std::vector<std::string>& args,
                const RunOptions& options = {});
// Returns the command line: the program and its arguments.
std::vector<std::string> trireme_command(const std::vector<std::string>& args);

// Runs with --json added, expects success, and returns the JSON object, which must be all of
// stdout.
base::Json trireme_json(const Scratch& scratch, std::vector<std::string> args);
// Parses a text that must be one JSON object; otherwise the test fails and it returns null.
base::Json only_object(const std::string& text);

// Writes tiny.toml, a model of two layers whose tokens are bytes; text.txt, a text of about 3,000
// bytes; and tiny_run.toml, a configuration of four steps with both, which writes to run/.
void write_tiny(const Scratch& scratch);
std::string tiny_text(int lines);
extern const std::string_view tiny_model, tiny_config;

// Replaces the first `from` in `text`. REQUIRES: `text` contains it.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

// Splits a line as a shell does: blanks separate words, single quotes keep them together.
std::vector<std::string> words_of(const std::string& line);

}  // namespace trireme::tests
