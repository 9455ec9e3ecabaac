// SPDX-License-Identifier: Apache-2.0
// The folder PREFIX.build of a build that is under way: files that only grow, and state.json, which
// records how long they were when the last shard was committed. What a killed process wrote after
// that is cut off.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/system/descriptor.h"
#include "base/text/json_fwd.h"
#include "data/corpus/counts.h"

namespace trireme::data {

// Appends through a buffer. Used from one thread. Throws IoError.
class GrowingFile {
 public:
  // Opens or creates the file and cuts it to `bytes`. Throws if it is shorter.
  GrowingFile(std::filesystem::path path, int64_t bytes);

  void append(std::span<const std::byte> bytes);
  void write_at(int64_t offset, std::span<const std::byte> bytes);  // REQUIRES: appended before
  void sync();
  int64_t bytes() const { return bytes_ + static_cast<int64_t>(pending_.size()); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void flush();
  void write(int64_t offset, std::span<const std::byte> bytes);
  // Lets the system write to the disk while the build goes on, so that sync() has little to wait
  // for.
  void start_writeback(int64_t end);

  std::filesystem::path path_;
  base::Descriptor descriptor_;
  std::vector<std::byte> pending_;
  int64_t bytes_ = 0;  // in the file
  int64_t written_back_ = 0;
};

inline constexpr std::array<const char*, 4> work_files = {"tokens", "lengths", "mask",
                                                          "rejected.jsonl"};
enum class WorkFile : uint8_t { tokens, lengths, mask, rejected };

struct CorpusState {
  std::vector<ShardRecord> shards;  // committed
  std::array<int64_t, work_files.size()> bytes{};
  bool is_complete = false;  // all files are final and are being renamed
};

// Returns the folder of a build, PREFIX.build.
std::filesystem::path work_folder_of(std::filesystem::path prefix);
// Returns whether PREFIX.build has a complete data set whose files were not all renamed: the
// process was killed at its end, and the same build again completes it.
bool has_complete_build(const std::filesystem::path& prefix);

// One process at a time has the folder open.
class WorkFolder {
 public:
  // `identity` holds everything that the bytes of the result depend on. An unfinished build with
  // the same identity is continued. One with another is refused with ConfigError that names the
  // first key that differs, a damaged one with IoError; start_over discards both instead. Throws
  // IoError if another process has the folder.
  WorkFolder(std::filesystem::path folder, const base::Json& identity, bool start_over);

  // Returns the state of the last commit.
  const CorpusState& state() const { return state_; }
  const std::filesystem::path& path() const { return folder_; }
  GrowingFile& file(WorkFile which) { return *files_[static_cast<size_t>(which)]; }

  // Makes the content of all files durable and records it with the shards so far.
  void commit(std::vector<ShardRecord> shards, bool is_complete);
  // Forgets what was committed: the build begins again.
  void discard();
  // Closes the files and removes the folder.
  void remove();

 private:
  void lock();
  bool read_state(const base::Json& identity);
  void open_files();

  std::filesystem::path folder_;
  std::string identity_;
  CorpusState state_;
  std::optional<base::Descriptor> lock_;
  std::array<std::unique_ptr<GrowingFile>, work_files.size()> files_;
};

}  // namespace trireme::data
