// SPDX-License-Identifier: Apache-2.0
// A disk in memory that logs its operations and computes what a power cut after any of them may
// leave. What was not synced:
//   bytes of a file    any subset is on disk, in units of 512 or 4096 bytes; the rest is zero, the
//                      previous content, or garbage
//   size of a file     any between the synced one and the last
//   names in a folder  any subset of links, unlinks and renames, each atomic: a new file may be
//                      missing, a rename undone
// What was synced is on disk: bytes and size by DiskFile::sync(), names by sync_folder() of their
// folder. File systems promise more (mostly order); nothing here relies on it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "choices.h"
#include "ckpt/disk/hash.h"
#include "ckpt/disk/memory_disk.h"

namespace trireme::crashlab {

class CrashDisk final : public ckpt::Disk {
 public:
  using Bytes = std::vector<std::byte>;

  CrashDisk();
  // Begins with the contents of another disk, durable.
  explicit CrashDisk(ckpt::MemoryDisk& start);

  std::unique_ptr<ckpt::DiskFile> create(const Path&, int64_t bytes) override;
  std::unique_ptr<ckpt::DiskFile> open(const Path&) override;
  void make_folder(const Path&) override;
  void sync_folder(const Path&) override;
  void rename(const Path& from, const Path& to) override;
  void remove_file(const Path&) override;
  void remove_folder(const Path&) override;
  std::vector<ckpt::DiskEntry> list(const Path&) override;
  bool exists(const Path&) override;
  bool is_link(const Path&) override { return false; }

  // Number of changes and syncs so far.
  size_t operations() const;
  // Returns the numbers of operations whose last one writes pages, where most can be lost.
  std::vector<size_t> after_large_writes() const;
  // Returns what is left when the power is cut after the first `operations` operations.
  std::unique_ptr<ckpt::MemoryDisk> image(size_t operations, Choices&) const;

 private:
  friend class CrashFile;
  enum class Kind : uint8_t { write, extend, sync, link, unlink, rename, sync_names };
  struct Operation {
    Kind kind;
    int node;  // the file, or the folder whose names change
    int64_t offset = 0;
    Bytes bytes;
    std::string name, to;
    int child = 0;
  };
  struct Node {
    bool is_folder = false;
    std::map<std::string, int> names;
    Bytes bytes;
    std::vector<size_t> log;  // its operations
  };

  int find(const Path&) const;  // -1: does not exist
  int expect(const Path&, bool is_folder) const;
  void log(Operation);  // and applies it
  void put(ckpt::MemoryDisk& image, int node, const Path&, size_t operations, Choices&) const;
  Bytes bytes_after(const Node&, size_t operations, Choices&) const;
  std::map<std::string, int> names_after(const Node&, size_t operations, Choices&) const;
  static void apply(const Operation&, std::map<std::string, int>& names);

  mutable std::mutex mutex_;  // guards all below
  std::vector<Node> nodes_;   // the first is "/"
  std::vector<Operation> log_;
};

// Hashes all names and bytes.
ckpt::Hash hash_of(ckpt::MemoryDisk&);

}  // namespace trireme::crashlab
