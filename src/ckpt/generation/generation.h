// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint into any layout. Every chunk (1 MiB) is hashed before a byte of it is used;
// there is no way to read unchecked bytes.
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
#include "ckpt/disk/parallel.h"
#include "ckpt/generation/format.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

// Fills `bytes` with pieces of a tensor: piece p begins at element p.local. Elements that no piece
// covers are left unchanged. REQUIRES: the pieces lie within `bytes`.
struct ReadRequest {
  TensorInfo tensor;  // expected type and shape; a mismatch is an error
  std::vector<spec::Piece> wanted;
  std::span<std::byte> bytes;
};

class Generation {
 public:
  // Reads and checks the manifest and the indexes: hashes, sizes of all files, agreement of indexes
  // and manifest, and full coverage of every tensor. Throws IoError that names the file, what is
  // wrong and what it means. REQUIRES: the disk outlives the object.
  static Generation open(Disk&, const std::filesystem::path& folder, const IoOptions& = {});

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t data_bytes() const;  // of all files

  // Reads only the chunks that are needed, each once for all requests. Throws IoError for a tensor
  // that is missing or different, or for a damaged chunk; some requests may have been filled by
  // then. Memory: one chunk per transfer in flight, and a few words per chunk and box. Any thread
  // may call.
  void read(std::span<const ReadRequest>, const IoOptions& = {}) const;

  // Reads everything and returns a line for every damaged chunk and for padding that is not zero.
  // `progress` receives the bytes of every chunk after it was read, from one thread at a time.
  std::vector<std::string> damage(const IoOptions& = {},
                                  const std::function<void(int64_t bytes)>& progress = {}) const;

 private:
  // Returns the location of a tensor: pieces by file, with Piece::local counting elements from the
  // start of the file.
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
  // Reads and checks a chunk and returns the part of `buffer` that it fills. REQUIRES: buffer has
  // chunk_bytes.
  std::span<std::byte> read_chunk(DiskFile&, int file, int64_t chunk,
                                  std::span<std::byte> buffer) const;

  Disk* disk_ = nullptr;
  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<DataFile> files_;
  std::map<std::string, Saved, std::less<>> saved_;
};

// ---- choosing a checkpoint
struct GenerationInfo {
  int64_t step = 0;
  std::filesystem::path folder;
  std::string problem;  // what is wrong with it; empty if it opens
};
// Opens every entry with the name of a checkpoint, newest first. Returns an empty list if the
// folder does not exist.
std::vector<GenerationInfo> list_generations(Disk&, const std::filesystem::path& root,
                                             const IoOptions& = {});

enum class Verify : uint8_t {
  structure,  // Generation::open(); chunks are checked when they are read
  all         // also checks every chunk now
};

struct NewestGood {
  std::optional<Generation> generation;
  std::vector<GenerationInfo> skipped;  // newer ones, with reasons
};
// Returns the newest checkpoint that verifies. If there is none, `skipped` contains the reasons; it
// is empty if nothing was ever saved.
NewestGood newest_good(Disk&, const std::filesystem::path& root, Verify, const IoOptions& = {});

}  // namespace trireme::ckpt
