// SPDX-License-Identifier: Apache-2.0
// Disk: the file operations that a checkpoint needs, and no others. Tests substitute a disk in
// memory, one that loses power, or one that fails (memory_disk.h, tests/crashlab).
//
// All functions throw base::IoError with path, operation and reason, and NoSpace if the disk is
// full. Durable are the bytes of a file after DiskFile::sync() and the names in a folder after
// Disk::sync_folder(); nothing else is. Any thread may call; several threads may write one file at
// different offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trireme::ckpt {

// The disk, or the user's quota, is full. The save fails; training continues.
class NoSpace : public base::IoError {
 public:
  using IoError::IoError;
};

// Direct transfers require offset, length and memory address to be multiples of this.
constexpr int64_t page_bytes = 4096;

class DiskFile {
 public:
  virtual ~DiskFile() = default;
  // Writes all bytes or throws. REQUIRES: the file was created by Disk::create().
  virtual void write_at(int64_t offset, std::span<const std::byte> bytes) = 0;
  // Reads all bytes or throws, also if the file ends early.
  virtual void read_at(int64_t offset, std::span<std::byte> bytes) = 0;
  virtual int64_t size() = 0;
  virtual void sync() = 0;
};

struct DiskEntry {
  std::string name;
  bool is_folder = false;  // the entry itself; false for a link to a folder
  bool is_link = false;    // a symbolic link, whatever its target
  bool operator==(const DiskEntry&) const = default;
};

class Disk {
 public:
  using Path = std::filesystem::path;

  virtual ~Disk() = default;
  // Creates a file of `bytes` zeros for writing and reading, with its space preallocated if the
  // file system supports it. Throws if the name exists.
  virtual std::unique_ptr<DiskFile> create(const Path&, int64_t bytes) = 0;
  // Opens a file for reading.
  virtual std::unique_ptr<DiskFile> open(const Path&) = 0;
  // Creates a folder. Throws if the name exists.
  virtual void make_folder(const Path&) = 0;
  virtual void sync_folder(const Path&) = 0;
  // Renames atomically: a reader sees the old name or the new one. REQUIRES: both are in one
  // folder. Throws if `to` exists.
  virtual void rename(const Path& from, const Path& to) = 0;
  // Removes a file, or a symbolic link itself. A missing name is not an error.
  virtual void remove_file(const Path&) = 0;
  // Removes an empty folder. A missing name is not an error. REQUIRES: it is empty.
  virtual void remove_folder(const Path&) = 0;
  // Returns the entries sorted by name.
  virtual std::vector<DiskEntry> list(const Path&) = 0;
  virtual bool exists(const Path&) = 0;
  // Checks the name itself without following a link.
  virtual bool is_link(const Path&) = 0;
};

// Returns the file as text. A file above `limit_bytes` is refused before memory is allocated for
// it.
std::string read_text(Disk&, const Disk::Path&, int64_t limit_bytes);

// Creates a file with this text and syncs it.
void write_text(Disk&, const Disk::Path&, std::string_view text);

// Removes a folder and its contents. Links are removed and never followed, neither `folder` itself
// nor those inside it. Entries that another process removes meanwhile are not an error.
void remove_all(Disk&, const Disk::Path& folder);

}  // namespace trireme::ckpt
