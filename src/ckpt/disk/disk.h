// SPDX-License-Identifier: Apache-2.0
// Disk: the file operations that a checkpoint makes, and no others. Tests put a disk in memory, one
// that loses power, or one that fails in its place (memory_disk.h, tests/crashlab).
//
// All throw base::IoError with path, operation and reason; NoSpace where the disk is full. What is
// durable: the bytes of a file after DiskFile::sync(), the names in a folder after
// Disk::sync_folder(), and nothing else. Any thread may call; one file may be written by several
// threads at different places.
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

// The disk, or the user's share of it, is full: saving cannot go on, training can.
class NoSpace : public base::IoError {
 public:
  using IoError::IoError;
};

// Direct transfers want offset, length and memory to be multiples of this.
constexpr int64_t page_bytes = 4096;

class DiskFile {
 public:
  virtual ~DiskFile() = default;
  // All bytes or an error. REQUIRES: the file was made by Disk::create().
  virtual void write_at(int64_t offset, std::span<const std::byte> bytes) = 0;
  // All bytes or an error: a file that ends before is one.
  virtual void read_at(int64_t offset, std::span<std::byte> bytes) = 0;
  virtual int64_t size() = 0;
  virtual void sync() = 0;
};

struct DiskEntry {
  std::string name;
  bool is_folder = false;  // the entry itself; false for a link to a folder
  bool is_link = false;    // a symbolic link, whatever it points to
  bool operator==(const DiskEntry&) const = default;
};

class Disk {
 public:
  using Path = std::filesystem::path;

  virtual ~Disk() = default;
  // A new file of `bytes` zeros, for writing and reading; the place is set aside where the file
  // system can. An error if the name is taken.
  virtual std::unique_ptr<DiskFile> create(const Path&, int64_t bytes) = 0;
  // For reading.
  virtual std::unique_ptr<DiskFile> open(const Path&) = 0;
  // An error if the name is taken.
  virtual void make_folder(const Path&) = 0;
  virtual void sync_folder(const Path&) = 0;
  // In one step: a reader sees the old name or the new one. REQUIRES: both lie in one folder. An
  // error if `to` is taken.
  virtual void rename(const Path& from, const Path& to) = 0;
  // Removes a file, or a symbolic link itself. Not an error if there is none.
  virtual void remove_file(const Path&) = 0;
  // Not an error if there is none. REQUIRES: it is empty.
  virtual void remove_folder(const Path&) = 0;
  // In the order of names.
  virtual std::vector<DiskEntry> list(const Path&) = 0;
  virtual bool exists(const Path&) = 0;
  // Checks the name itself, without following it.
  virtual bool is_link(const Path&) = 0;
};

// The whole file as text. A file above `limit_bytes` is refused before memory is taken for it.
std::string read_text(Disk&, const Disk::Path&, int64_t limit_bytes);

// A new file with this text, synced.
void write_text(Disk&, const Disk::Path&, std::string_view text);

// Removes a folder with all that lies in it. Links are removed and never followed, neither `folder`
// itself nor those inside it. What another process removes meanwhile is no error.
void remove_all(Disk&, const Disk::Path& folder);

}  // namespace trireme::ckpt
