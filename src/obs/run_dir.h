// SPDX-License-Identifier: Apache-2.0
// The directory of a run, and files in it that appear whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace trireme::obs {

// Writes beside `path`, syncs and renames: a reader sees the old file or the whole new one. Throws
// IoError, on a full disk too; then the old file is as before and no temporary one stays.
void write_file(const std::filesystem::path& path, std::string_view text);

// Gives a file that is there the next free name of "run-1.json", "run-2.json", ... Throws IoError.
void keep_numbered(const std::filesystem::path& path);

enum class RunMode {
  fresh,      // refuses a directory that holds a run
  overwrite,  // removes what an earlier run logged
  resume,     // wants a directory that holds a run
};

class RunDir {
 public:
  // A directory holds a run if one of these is there. Other files in it are nobody's business.
  static constexpr const char* config_name = "run.json";  // the resolved configuration
  static constexpr const char* metrics_name = "metrics.jsonl";
  static constexpr const char* events_name = "tb";        // folder of TensorBoard events
  static constexpr const char* weights_name = "weights";  // folder of the last export

  // Makes the directory if need be and tries to write in it. Throws IoError that says what may be
  // changed.
  static RunDir open(const std::filesystem::path& path, RunMode mode);
  // Throws what open() would throw of what is there, and changes nothing.
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

// Whether run.json or metrics.jsonl is there.
bool holds_run(const std::filesystem::path& directory);

}  // namespace trireme::obs
