// SPDX-License-Identifier: Apache-2.0
// A disk in memory, for tests and dry runs. Copies are independent.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ckpt/disk/disk.h"

namespace trireme::ckpt {

class MemoryDisk final : public Disk {
 public:
  using Bytes = std::vector<std::byte>;

  MemoryDisk();
  MemoryDisk(const MemoryDisk&);
  MemoryDisk& operator=(const MemoryDisk&) = delete;

  std::unique_ptr<DiskFile> create(const Path&, int64_t bytes) override;
  std::unique_ptr<DiskFile> open(const Path&) override;
  void make_folder(const Path&) override;
  void sync_folder(const Path&) override;
  void rename(const Path& from, const Path& to) override;
  void remove_file(const Path&) override;
  void remove_folder(const Path&) override;
  std::vector<DiskEntry> list(const Path&) override;
  bool exists(const Path&) override;
  bool is_link(const Path&) override { return false; }

  // ---- for tests, bypassing the rules above
  // Returns the content of a file, to be modified in place. REQUIRES: it exists, and no other
  // thread uses it.
  Bytes& bytes(const Path&);
  // Returns all files by path.
  std::vector<Path> files() const;
  // Creates a file or folder with all its parent folders; an existing file is replaced.
  void put_file(const Path&, Bytes);
  void put_folder(const Path&);

 private:
  // A file has bytes; a folder has none.
  std::shared_ptr<Bytes>& at(const Path&);
  void expect_free(const Path&) const;  // the name is free, its folder exists
  void expect_folder(const Path&) const;

  mutable std::mutex mutex_;  // guards nodes_ and the bytes of all files
  std::map<std::string, std::shared_ptr<Bytes>> nodes_;
};

}  // namespace trireme::ckpt
