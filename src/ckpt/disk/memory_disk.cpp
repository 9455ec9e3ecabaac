// SPDX-License-Identifier: Apache-2.0
#include "ckpt/disk/memory_disk.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace trireme::ckpt {
namespace {

class MemoryFile final : public DiskFile {
 public:
  MemoryFile(std::string path, std::shared_ptr<MemoryDisk::Bytes> bytes, std::mutex& mutex)
      : path_(std::move(path)), bytes_(std::move(bytes)), mutex_(mutex) {}

  void write_at(int64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    const size_t begin = static_cast<size_t>(offset), end = begin + bytes.size();
    if (bytes_->size() < end) bytes_->resize(end);
    std::copy(bytes.begin(), bytes.end(), bytes_->begin() + static_cast<std::ptrdiff_t>(begin));
  }
  void read_at(int64_t offset, std::span<std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    const size_t begin = static_cast<size_t>(offset);
    if (begin > bytes_->size() || bytes_->size() - begin < bytes.size()) {
      throw base::IoError(fmt::format("cannot read {} bytes at {} of {}: it ends before",
                                      bytes.size(), offset, path_));
    }
    std::copy_n(bytes_->begin() + static_cast<std::ptrdiff_t>(begin), bytes.size(), bytes.begin());
  }
  int64_t size() override {
    const std::lock_guard lock(mutex_);
    return std::ssize(*bytes_);
  }
  void sync() override {}

 private:
  std::string path_;
  std::shared_ptr<MemoryDisk::Bytes> bytes_;
  std::mutex& mutex_;
};

[[noreturn]] void fail(const char* what, const Disk::Path& path, const char* why) {
  throw base::IoError(fmt::format("cannot {} {}: {}", what, path.string(), why));
}

}  // namespace

MemoryDisk::MemoryDisk() { nodes_["/"] = nullptr; }

MemoryDisk::MemoryDisk(const MemoryDisk& other) : Disk(other) {
  const std::lock_guard lock(other.mutex_);
  for (const auto& [path, bytes] : other.nodes_) {
    nodes_[path] = bytes == nullptr ? nullptr : std::make_shared<Bytes>(*bytes);
  }
}

std::unique_ptr<DiskFile> MemoryDisk::create(const Path& path, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  expect_free(path);
  auto content = std::make_shared<Bytes>(static_cast<size_t>(bytes));
  nodes_[path.string()] = content;
  return std::make_unique<MemoryFile>(path.string(), content, mutex_);
}

std::unique_ptr<DiskFile> MemoryDisk::open(const Path& path) {
  const std::lock_guard lock(mutex_);
  const auto& content = at(path);
  if (content == nullptr) throw base::IoError(fmt::format("{} is not a file", path.string()));
  return std::make_unique<MemoryFile>(path.string(), content, mutex_);
}

void MemoryDisk::make_folder(const Path& path) {
  const std::lock_guard lock(mutex_);
  expect_free(path);
  nodes_[path.string()] = nullptr;
}

void MemoryDisk::sync_folder(const Path& path) {
  const std::lock_guard lock(mutex_);
  expect_folder(path);
}

void MemoryDisk::rename(const Path& from, const Path& to) {
  const std::lock_guard lock(mutex_);
  at(from);
  expect_free(to);
  const std::string inside = from.string() + "/";
  std::vector<std::string> moved = {from.string()};
  for (auto node = nodes_.lower_bound(inside);
       node != nodes_.end() && node->first.starts_with(inside); ++node) {
    moved.push_back(node->first);
  }
  for (const std::string& path : moved) {
    auto node = nodes_.extract(path);
    node.key() = to.string() + path.substr(from.string().size());
    nodes_.insert(std::move(node));
  }
}

void MemoryDisk::remove_file(const Path& path) {
  const std::lock_guard lock(mutex_);
  if (!nodes_.contains(path.string())) return;
  if (at(path) == nullptr) fail("remove", path, "it is a folder");
  nodes_.erase(path.string());
}

void MemoryDisk::remove_folder(const Path& path) {
  const std::lock_guard lock(mutex_);
  if (!nodes_.contains(path.string())) return;
  expect_folder(path);
  const std::string inside = path.string() + "/";
  const auto next = nodes_.lower_bound(inside);
  if (next != nodes_.end() && next->first.starts_with(inside)) {
    fail("remove the folder", path, "it is not empty");
  }
  nodes_.erase(path.string());
}

std::vector<DiskEntry> MemoryDisk::list(const Path& path) {
  const std::lock_guard lock(mutex_);
  expect_folder(path);
  const std::string inside = path == "/" ? "/" : path.string() + "/";
  std::vector<DiskEntry> entries;
  for (auto node = nodes_.upper_bound(inside);
       node != nodes_.end() && node->first.starts_with(inside); ++node) {
    const std::string name = node->first.substr(inside.size());
    if (name.find('/') == std::string::npos) entries.push_back({name, node->second == nullptr});
  }
  std::ranges::sort(entries, {}, &DiskEntry::name);
  return entries;
}

bool MemoryDisk::exists(const Path& path) {
  const std::lock_guard lock(mutex_);
  return nodes_.contains(path.string());
}

MemoryDisk::Bytes& MemoryDisk::bytes(const Path& path) {
  const std::lock_guard lock(mutex_);
  const auto& content = at(path);
  TRIREME_CHECK(content != nullptr, "{} is a folder", path.string());
  return *content;
}

std::vector<Disk::Path> MemoryDisk::files() const {
  const std::lock_guard lock(mutex_);
  std::vector<Path> paths;
  for (const auto& [path, bytes] : nodes_) {
    if (bytes != nullptr) paths.emplace_back(path);
  }
  return paths;
}

void MemoryDisk::put_file(const Path& path, Bytes bytes) {
  put_folder(path.parent_path());
  const std::lock_guard lock(mutex_);
  nodes_[path.string()] = std::make_shared<Bytes>(std::move(bytes));
}

void MemoryDisk::put_folder(const Path& path) {
  if (path == "/") return;
  put_folder(path.parent_path());
  const std::lock_guard lock(mutex_);
  nodes_.try_emplace(path.string(), nullptr);
}

std::shared_ptr<MemoryDisk::Bytes>& MemoryDisk::at(const Path& path) {
  const auto node = nodes_.find(path.string());
  if (node == nodes_.end()) fail("open", path, "No such file or directory");
  return node->second;
}

void MemoryDisk::expect_free(const Path& path) const {
  TRIREME_CHECK(path.is_absolute(), "{} is not absolute", path.string());
  if (nodes_.contains(path.string())) fail("create", path, "File exists");
  expect_folder(path.parent_path());
}

void MemoryDisk::expect_folder(const Path& path) const {
  const auto node = nodes_.find(path.string());
  if (node == nodes_.end()) fail("open the folder", path, "No such file or directory");
  if (node->second != nullptr) fail("open the folder", path, "Not a directory");
}

}  // namespace trireme::ckpt
