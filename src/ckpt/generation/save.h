// SPDX-License-Identifier: Apache-2.0
// Writing a generation. The first rank begins it, every rank writes its data file and index, and
// once all have returned the first commits:
//
//   first rank:  draft = begin_generation(disk, root, step)       and tells the others
//   every rank:  file = write_data(disk, {draft.folder, rank, layout, bytes})   and tells the first
//   first rank:  commit(disk, draft, manifest with all files)
//
// A generation exists from the moment on at which its folder has its final name, "step-00000020";
// until then it is called "step-00000020.tmp-RUN-EPOCH-N", and readers do not see it. When commit()
// has returned, a power cut cannot undo it. After an exception of any of the three the draft is
// lost: abandon() it, or leave it to remove_leftovers(). All functions throw IoError, NoSpace where
// the disk is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "ckpt/disk/disk.h"
#include "ckpt/generation/folder.h"
#include "ckpt/generation/format.h"
#include "ckpt/disk/parallel.h"
#include "ckpt/disk/workspace.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

// What a rank saves of one tensor. Piece::local is not looked at.
struct TensorPieces {
  TensorInfo tensor;
  std::vector<spec::Piece> pieces;
};

// Where everything lies in a data file, hence also in the memory that it is written from.
struct FileLayout {
  std::vector<SavedTensor> tensors;  // as given, with offsets
  int64_t bytes = 0;                 // of the file, a multiple of page_bytes
};

// A pure function of the pieces, so that staging memory is known before a run starts. REQUIRES:
// every tensor keeps the rules of TensorInfo, every piece is a box of it that is not empty.
FileLayout plan_file(std::span<const TensorPieces>);

struct Draft {
  int64_t step = 0;
  Writer writer;
  std::filesystem::path root;       // the checkpoint folder
  std::filesystem::path folder;     // that is written into
  std::filesystem::path committed;  // its name afterwards
};

// Makes `root` if it is missing (its parent must exist), and in it the draft's folder, under a name
// that no other draft had that can still be seen. Throws IoError if this step was committed before:
// set_aside_newer() makes room for a run that goes back.
Draft begin_generation(Disk&, const std::filesystem::path& root, int64_t step,
                       const Writer& writer = {});

// Memory that write_data() takes besides the bytes of the file: the hashes of chunks, the index as
// text, and with reread a chunk for every transfer in flight. A pure function, as plan_file().
int64_t writer_bytes(const FileLayout&, int rank, const IoOptions& = {});

struct DataToWrite {
  const std::filesystem::path& folder;  // Draft::folder
  int rank = 0;
  const FileLayout& layout;
  // The file as it will be: every box at its offset, zeros between. Aligned to page_bytes for
  // direct transfers. Must not change until the call returns.
  std::span<const std::byte> bytes;
  // Of writer_bytes(), of which exactly that is taken before anything is written. Null: its own.
  Workspace* workspace = nullptr;
};

// Writes and syncs data file and index; the index has hashes of `bytes`, not of what the disk
// gives back.
FileInfo write_data(Disk&, const DataToWrite&, const IoOptions& = {});

// The same for a file that does not fit in memory: append() takes it from front to back.
class DataWriter {
 public:
  DataWriter(Disk&, const std::filesystem::path& folder, int rank, FileLayout layout);
  // REQUIRES: every call but the last has a multiple of chunk_bytes.
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

// Writes the manifest, makes all durable, and gives the folder its final name, which is returned.
// `guard`, where there is one, is called around the rename alone. REQUIRES: every rank of
// manifest.files returned from write_data() with that FileInfo; files are by rank; the writer is
// that of the draft. Throws IoError, and commits nothing, if a file is not there in its full size.
std::filesystem::path commit(Disk&, const Draft&, const Manifest&, const Guard& guard = {});

// Removes a draft that will not be committed. Does not throw: what cannot be removed is left to
// remove_leftovers().
void abandon(Disk&, const Draft&) noexcept;

}  // namespace trireme::ckpt
