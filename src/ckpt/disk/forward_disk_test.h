// SPDX-License-Identifier: Apache-2.0
// A disk that forwards every call to another one: the base class of disks with faults.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ckpt/disk/disk.h"

namespace trireme::ckpt {

class ForwardFile : public DiskFile {
 public:
  explicit ForwardFile(std::unique_ptr<DiskFile> file) : file_(std::move(file)) {}
  void write_at(int64_t offset, std::span<const std::byte> bytes) override {
    file_->write_at(offset, bytes);
  }
  void read_at(int64_t offset, std::span<std::byte> bytes) override {
    file_->read_at(offset, bytes);
  }
  int64_t size() override { return file_->size(); }
  void sync() override { file_->sync(); }

 private:
  std::unique_ptr<DiskFile> file_;
};

// REQUIRES: the other disk outlives it.
class ForwardDisk : public Disk {
 public:
  explicit ForwardDisk(Disk& disk) : disk_(disk) {}
  std::unique_ptr<DiskFile> create(const Path& path, int64_t bytes) override {
    return disk_.create(path, bytes);
  }
  std::unique_ptr<DiskFile> open(const Path& path) override { return disk_.open(path); }
  void make_folder(const Path& path) override { disk_.make_folder(path); }
  void sync_folder(const Path& path) override { disk_.sync_folder(path); }
  void rename(const Path& from, const Path& to) override { disk_.rename(from, to); }
  void remove_file(const Path& path) override { disk_.remove_file(path); }
  void remove_folder(const Path& path) override { disk_.remove_folder(path); }
  std::vector<DiskEntry> list(const Path& path) override { return disk_.list(path); }
  bool exists(const Path& path) override { return disk_.exists(path); }
  bool is_link(const Path& path) override { return disk_.is_link(path); }

 protected:
  Disk& disk_;
};

}  // namespace trireme::ckpt
