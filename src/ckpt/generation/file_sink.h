// SPDX-License-Identifier: Apache-2.0
// FileSink: the state of a rank as data file and index in the draft of a generation (save.h). All
// functions throw IoError, and NoSpace if the disk is full.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "ckpt/disk/aligned.h"
#include "ckpt/generation/save.h"
#include "ckpt/sink.h"

namespace trireme::ckpt {

class FileSink final : public Sink {
 public:
  // All references must outlive it.
  struct Parts {
    Disk& disk;
    std::filesystem::path folder;  // Draft::folder
    int rank = 0;
    const FileLayout& layout;
    // Memory of writer_bytes(), all of which begin() takes. Null: allocates its own.
    Workspace* workspace = nullptr;
  };
  explicit FileSink(Parts parts, const IoOptions& io = {});

 private:
  void do_begin() override;
  void do_write(std::span<const std::byte> content) override;
  Receipt do_seal() override;
  int64_t chunks() const;
  IndexView index() const;
  void compare_with_disk() const;

  const Parts parts_;
  const IoOptions io_;
  AlignedBytes own_memory_;
  Workspace own_workspace_;
  // ---- of the workspace
  std::span<Hash> hashes_;
  std::span<char> text_;
  std::span<std::byte> reread_;
  std::unique_ptr<DiskFile> file_;
};

// Returns what a manifest has about the files of a rank with this receipt.
FileInfo file_of(int rank, const Receipt&);

// Writes and syncs the text index of a data file that is durable.
Receipt write_index(Disk&, const std::filesystem::path& folder, const IndexView&,
                    std::string_view text);

}  // namespace trireme::ckpt
