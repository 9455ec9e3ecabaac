// SPDX-License-Identifier: Apache-2.0
// The built program, run as a user runs it: in a folder of its own, with a deadline, its exit code
// and both of its streams kept.
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

// What a run of the tiny configuration leaves.
inline const std::string final_weights = "run/weights/final/model.safetensors";

// Every file below a folder, by its path from there; folders end in a slash.
using Tree = std::map<std::string, std::string>;

// A folder that is removed with everything in it.
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
  int64_t max_file_bytes = 0;  // no file may grow above; 0: no limit. Stands for a full disk.
  double deadline_seconds = 60;
};

// The program while it runs. A process that is left is ended.
class Running {
 public:
  Running(const std::filesystem::path& folder, std::vector<std::string> command,
          const RunOptions& options = {});
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void signal(int number) const;
  // Until `holds`; false if the program ended before, or the deadline passed.
  bool wait_for(const std::function<bool()>& holds);
  Outcome wait();
  // Closes this end of the program's stdout and stderr, as a reader does that dies.
  void close_streams();
  bool has_ended();  // the program itself; processes that it started may still run
  pid_t process() const { return process_; }
  const std::string& out() const { return outcome_.out; }  // what it has written so far
  const std::string& err() const { return outcome_.err; }

 private:
  bool read_streams(int wait_ms);  // false once both are closed
  bool is_late() const;

  pid_t process_ = -1;  // -1: its exit code is known
  int out_ = -1, err_ = -1;
  double end_seconds_;
  Outcome outcome_;
};

// Runs `trireme ARGS...` in the folder.
Outcome trireme(const Scratch& scratch, const std::vector<std::string>& args,
                const RunOptions& options = {});
// The words of the program's command line.
std::vector<std::string> trireme_command(const std::vector<std::string>& args);

// Runs with --json added, wants success, and returns the object. stdout must be that and no more.
base::Json trireme_json(const Scratch& scratch, std::vector<std::string> args);
// The one JSON object that the text is; null and a failure if it is anything else.
base::Json only_object(const std::string& text);

// A model of two layers over bytes, tiny.toml, a text of about 3,000 bytes, text.txt, and a
// configuration of four steps over both, tiny_run.toml, that writes to run/.
void write_tiny(const Scratch& scratch);
std::string tiny_text(int lines);
extern const std::string_view tiny_model, tiny_config;

// `text` with the first `from` replaced, which must be there.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

// As many of `words` as a shell would see: blanks separate, single quotes hold together.
std::vector<std::string> words_of(const std::string& line);

}  // namespace trireme::tests
