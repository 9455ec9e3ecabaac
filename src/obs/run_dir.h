// SPDX-License-Identifier: Apache-2.0
// The directory of a run, and files in it that are written completely or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace trireme::obs {

// Writes a temporary file beside `path`, syncs and renames it: a reader sees the old file or the
// complete new one. Throws IoError, also on a full disk; then the old file is unchanged and no
// temporary file remains.
void write_file(const std::filesystem::path& path, std::string_view text);

// Renames an existing file to the next free name of "run-1.json", "run-2.json", ... Throws IoError.
void keep_numbered(const std::filesystem::path& path);

enum class RunMode {
  fresh,      // refuses a directory that holds a run
  overwrite,  // removes the logs of an earlier run
  resume,     // requires a directory that holds a run
};

class RunDir {
 public:
  // A directory holds a run if run.json or metrics.jsonl exists. Other files in it are ignored.
  static constexpr const char* config_name = "run.json";  // the resolved configuration
  static constexpr const char* metrics_name = "metrics.jsonl";
  static constexpr const char* events_name = "tb";        // folder of TensorBoard events
  static constexpr const char* weights_name = "weights";  // folder of the last export

  // Creates the directory if necessary and tries to write in it. Throws IoError with what to
  // change.
  static RunDir open(const std::filesystem::path& path, RunMode mode);
  // Throws IoError if the path exists and is not a directory.
  static void expect_directory(const std::filesystem::path& path);
  // Throws as open() does for the existing files, and changes nothing.
  static void check(const std::filesystem::path& path, RunMode mode);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / config_name; }
  std::filesystem::path metrics() const { return path_ / metrics_name; }
  std::filesystem::path events() const { return path_ / events_name; }
  std::filesystem::path weights() const { return path_ / weights_name; }

 private:
  explicit RunDir(std::filesystem::path path);
  std::filesystem::path path_;
};

// Returns whether run.json or metrics.jsonl exists.
bool holds_run(const std::filesystem::path& directory);

}  // namespace trireme::obs
