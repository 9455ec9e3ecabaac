// SPDX-License-Identifier: Apache-2.0
// A disk on which one operation fails or, if it is permanently broken, every operation from then
// on. A failing write has written half of its bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "ckpt/disk/forward_disk_test.h"

namespace trireme::crashlab {

struct Failure {
  int64_t operation = -1;  // the first that fails; -1: none
  bool for_good = false;
  bool is_full = false;  // NoSpace instead of IoError, and only where bytes or names are added
};

class FailingDisk final : public ckpt::ForwardDisk {
 public:
  FailingDisk(ckpt::Disk& disk, const Failure& failure) : ForwardDisk(disk), failure_(failure) {}

  std::unique_ptr<ckpt::DiskFile> create(const Path& path, int64_t bytes) override {
    count(true);
    return std::make_unique<File>(*this, disk_.create(path, bytes));
  }
  std::unique_ptr<ckpt::DiskFile> open(const Path& path) override {
    count(false);
    return std::make_unique<File>(*this, disk_.open(path));
  }
  void make_folder(const Path& path) override {
    count(true);
    disk_.make_folder(path);
  }
  void sync_folder(const Path& path) override {
    count(false);
    disk_.sync_folder(path);
  }
  void rename(const Path& from, const Path& to) override {
    count(true);
    disk_.rename(from, to);
  }
  void remove_file(const Path& path) override {
    count(false);
    disk_.remove_file(path);
  }
  void remove_folder(const Path& path) override {
    count(false);
    disk_.remove_folder(path);
  }
  std::vector<ckpt::DiskEntry> list(const Path& path) override {
    count(false);
    return disk_.list(path);
  }
  bool exists(const Path& path) override {
    count(false);
    return disk_.exists(path);
  }

  int64_t operations() const { return operations_; }

 private:
  class File final : public ckpt::ForwardFile {
   public:
    File(FailingDisk& disk, std::unique_ptr<DiskFile> file)
        : ForwardFile(std::move(file)), disk_(disk) {}
    void write_at(int64_t offset, std::span<const std::byte> bytes) override {
      try {
        disk_.count(true);
      } catch (const base::IoError&) {
        ForwardFile::write_at(offset, bytes.first(bytes.size() / 2));
        throw;
      }
      ForwardFile::write_at(offset, bytes);
    }
    void read_at(int64_t offset, std::span<std::byte> bytes) override {
      disk_.count(false);
      ForwardFile::read_at(offset, bytes);
    }
    int64_t size() override {
      disk_.count(false);
      return ForwardFile::size();
    }
    void sync() override {
      disk_.count(true);
      ForwardFile::sync();
    }

   private:
    FailingDisk& disk_;
  };

  void count(bool adds) {
    const int64_t now = operations_++;
    if (failure_.operation < 0 || now < failure_.operation) return;
    if (now > failure_.operation && !failure_.for_good) return;
    if (!failure_.is_full) throw base::IoError("the disk failed");
    if (adds) throw ckpt::NoSpace("the disk is full");
  }

  Failure failure_;
  std::atomic<int64_t> operations_ = 0;
};

}  // namespace trireme::crashlab
