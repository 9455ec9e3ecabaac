// SPDX-License-Identifier: Apache-2.0
// Reading a generation, into any layout. Every chunk (1 MiB) that a byte is taken from is hashed
// before; there is no way to get bytes that were not checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/disk/disk.h"
#include "ckpt/generation/format.h"
#include "ckpt/disk/parallel.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

// Fills `bytes` with pieces of a tensor: piece p begins at element p.local. What no piece covers is
// left as it is. REQUIRES: the pieces lie within `bytes`.
struct ReadRequest {
  TensorInfo tensor;  // as the reader expects it: another type or shape is an error
  std::vector<spec::Piece> wanted;
  std::span<std::byte> bytes;
};

class Generation {
 public:
  // Reads and checks manifest and indexes: hashes, sizes of all files, that indexes and manifest
  // agree, and that every tensor was saved whole. Throws IoError that names the file, what is wrong
  // and what it means. REQUIRES: the disk outlives the object.
  static Generation open(Disk&, const std::filesystem::path& folder, const IoOptions& = {});

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t data_bytes() const;  // of all files

  // Reads only chunks that hold something wanted, each once for all requests. Throws IoError for a
  // tensor that is not there or different, or a chunk that is damaged; then some of the
  // requests may have been filled. Memory: one chunk for every transfer in flight, and a few words
  // for every chunk and box. Any thread may call.
  void read(std::span<const ReadRequest>, const IoOptions& = {}) const;

  // Reads everything. A line for every chunk that is damaged, and for padding that is not zero.
  // `progress` is told of the bytes of every chunk once it was read, by one thread at a time.
  std::vector<std::string> damage(const IoOptions& = {},
                                  const std::function<void(int64_t bytes)>& progress = {}) const;

 private:
  // Where a tensor lies: pieces by file, Piece::local counting elements from the start of the file.
  struct Saved {
    TensorInfo info;
    std::vector<int> files;  // indices into files_
    std::vector<std::vector<spec::Piece>> pieces;
  };
  struct DataFile {
    std::filesystem::path path;
    int64_t bytes = 0;
    std::vector<Hash> chunks;
  };
  class ReadPlan;

  Generation() = default;
  void add(const FileInfo&, const Index&);
  const Saved& find(const ReadRequest&) const;
  // REQUIRES: buffer has chunk_bytes. Gives the part that the chunk fills, read and checked.
  std::span<std::byte> read_chunk(DiskFile&, int file, int64_t chunk,
                                  std::span<std::byte> buffer) const;

  Disk* disk_ = nullptr;
  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<DataFile> files_;
  std::map<std::string, Saved, std::less<>> saved_;
};

// ---- which generation
struct GenerationInfo {
  int64_t step = 0;
  std::filesystem::path folder;
  std::string problem;  // what is wrong with it; empty: it opens
};
// All with a generation's name, newest first; each is opened. None if there is no such folder.
std::vector<GenerationInfo> list_generations(Disk&, const std::filesystem::path& root,
                                             const IoOptions& = {});

enum class Verify : uint8_t {
  structure,  // Generation::open(); chunks are checked when they are read
  all         // and every chunk now
};

struct NewestGood {
  std::optional<Generation> generation;
  std::vector<GenerationInfo> skipped;  // newer ones, and why
};
// The newest generation that verifies. No generation: `skipped` says why, or is empty where nothing
// was ever saved.
NewestGood newest_good(Disk&, const std::filesystem::path& root, Verify, const IoOptions& = {});

}  // namespace trireme::ckpt
