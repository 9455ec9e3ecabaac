// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint. The first rank begins it, every rank writes its data file and index, and
// once all have returned the first rank commits:
//
//   first rank:  draft = begin_generation(disk, root, step)       and broadcasts it
//   every rank:  file = write_data(disk, {draft.folder, rank, layout, bytes})   and returns it
//   first rank:  commit(disk, draft, manifest with all files)
//
// A checkpoint exists once its folder has its final name, "step-00000020"; until then it is called
// "step-00000020.tmp-RUN-EPOCH-N" and readers ignore it. After commit() has returned, a power cut
// cannot undo it. After an exception in any of the three the draft is lost: abandon() it, or leave
// it to remove_leftovers(). All functions throw IoError, and NoSpace if the disk is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "ckpt/disk/disk.h"
#include "ckpt/disk/parallel.h"
#include "ckpt/disk/workspace.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/format.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

// The pieces of one tensor that a rank saves. Piece::local is ignored.
struct TensorPieces {
  TensorInfo tensor;
  std::vector<spec::Piece> pieces;
};

// The layout of a data file, and of the memory that it is written from.
struct FileLayout {
  std::vector<SavedTensor> tensors;  // as given, with offsets
  int64_t bytes = 0;                 // of the file, a multiple of page_bytes
};

// A pure function of the pieces, so that staging memory is known before a run starts. REQUIRES:
// every tensor satisfies the rules of TensorInfo; every piece is a non-empty box of it.
FileLayout plan_file(std::span<const TensorPieces>);

struct Draft {
  int64_t step = 0;
  Writer writer;
  std::filesystem::path root;       // the checkpoint folder
  std::filesystem::path folder;     // being written
  std::filesystem::path committed;  // the final name
};

// Creates `root` if it is missing (its parent must exist), and in it the draft's folder, under a
// name that no visible draft has had. Throws IoError if this step was committed before;
// set_aside_newer() makes room for a run that resumes from an earlier step.
Draft begin_generation(Disk&, const std::filesystem::path& root, int64_t step,
                       const Writer& writer = {});

// Returns the memory that write_data() needs besides the bytes of the file: the hashes of chunks,
// the index as text, and with `reread` one chunk per transfer in flight. A pure function, like
// plan_file().
int64_t writer_bytes(const FileLayout&, int rank, const IoOptions& = {});

struct DataToWrite {
  const std::filesystem::path& folder;  // Draft::folder
  int rank = 0;
  const FileLayout& layout;
  // The complete file: every box at its offset, zeros between. Aligned to page_bytes for direct
  // transfers. Must not change until the call returns.
  std::span<const std::byte> bytes;
  // Memory of writer_bytes(), all of which is taken before anything is written. Null: allocates its
  // own.
  Workspace* workspace = nullptr;
};

// Writes and syncs data file and index. The index contains the hashes of `bytes`, not of what the
// disk returns.
FileInfo write_data(Disk&, const DataToWrite&, const IoOptions& = {});

// The same for a file that does not fit in memory: append() receives it from front to back.
class DataWriter {
 public:
  DataWriter(Disk&, const std::filesystem::path& folder, int rank, FileLayout layout);
  // REQUIRES: every call but the last passes a multiple of chunk_bytes.
  void append(std::span<const std::byte> bytes);
  // REQUIRES: layout.bytes were appended.
  FileInfo finish();

 private:
  Disk& disk_;
  std::filesystem::path folder_;
  Index index_;
  std::unique_ptr<DiskFile> file_;
  int64_t written_ = 0;
};

// Writes the manifest, makes everything durable, gives the folder its final name and returns that
// name. `guard`, if set, is called around the rename only. Throws IoError and commits nothing if a
// file does not have its full size. REQUIRES: every rank of manifest.files returned from
// write_data() with that FileInfo; files are sorted by rank; the writer is that of the draft.
std::filesystem::path commit(Disk&, const Draft&, const Manifest&, const Guard& guard = {});

// Removes a draft that will not be committed. Does not throw: remove_leftovers() removes what is
// left.
void abandon(Disk&, const Draft&) noexcept;

}  // namespace trireme::ckpt
