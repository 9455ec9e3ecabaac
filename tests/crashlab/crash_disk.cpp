// SPDX-License-Identifier: Apache-2.0
#include "crash_disk.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace trireme::crashlab {

class CrashFile final : public ckpt::DiskFile {
 public:
  CrashFile(CrashDisk& disk, int node) : disk_(disk), node_(node) {}

  void write_at(int64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(disk_.mutex_);
    disk_.log({.kind = CrashDisk::Kind::write,
               .node = node_,
               .offset = offset,
               .bytes = {bytes.begin(), bytes.end()}});
  }
  void read_at(int64_t offset, std::span<std::byte> bytes) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto& all = disk_.nodes_[static_cast<size_t>(node_)].bytes;
    if (offset + std::ssize(bytes) > std::ssize(all)) throw base::IoError("it ends before");
    std::copy_n(all.begin() + offset, bytes.size(), bytes.begin());
  }
  int64_t size() override {
    const std::lock_guard lock(disk_.mutex_);
    return std::ssize(disk_.nodes_[static_cast<size_t>(node_)].bytes);
  }
  void sync() override {
    const std::lock_guard lock(disk_.mutex_);
    disk_.log({.kind = CrashDisk::Kind::sync, .node = node_});
  }

 private:
  CrashDisk& disk_;
  int node_;
};

CrashDisk::CrashDisk() { nodes_.push_back({.is_folder = true}); }

CrashDisk::CrashDisk(ckpt::MemoryDisk& start) : CrashDisk() {
  const auto take = [&](const auto& self, const Path& folder) -> void {
    for (const ckpt::DiskEntry& entry : start.list(folder)) {
      if (entry.is_folder) {
        make_folder(folder / entry.name);
        self(self, folder / entry.name);
      } else {
        const auto file = create(folder / entry.name, 0);
        file->write_at(0, start.bytes(folder / entry.name));
        file->sync();
      }
    }
    sync_folder(folder);
  };
  take(take, "/");
}

std::unique_ptr<ckpt::DiskFile> CrashDisk::create(const Path& path, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int folder = expect(path.parent_path(), true);
  if (find(path) >= 0) throw base::IoError(fmt::format("{} exists", path.string()));
  const int node = static_cast<int>(nodes_.size());
  nodes_.push_back({});
  log({.kind = Kind::link, .node = folder, .name = path.filename().string(), .child = node});
  if (bytes > 0) log({.kind = Kind::extend, .node = node, .offset = bytes});
  return std::make_unique<CrashFile>(*this, node);
}

std::unique_ptr<ckpt::DiskFile> CrashDisk::open(const Path& path) {
  const std::lock_guard lock(mutex_);
  return std::make_unique<CrashFile>(*this, expect(path, false));
}

void CrashDisk::make_folder(const Path& path) {
  const std::lock_guard lock(mutex_);
  const int folder = expect(path.parent_path(), true);
  if (find(path) >= 0) throw base::IoError(fmt::format("{} exists", path.string()));
  const int node = static_cast<int>(nodes_.size());
  nodes_.push_back({.is_folder = true});
  log({.kind = Kind::link, .node = folder, .name = path.filename().string(), .child = node});
}

void CrashDisk::sync_folder(const Path& path) {
  const std::lock_guard lock(mutex_);
  log({.kind = Kind::sync_names, .node = expect(path, true)});
}

void CrashDisk::rename(const Path& from, const Path& to) {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(from.parent_path() == to.parent_path(), "{} and {}", from.string(), to.string());
  const int child = find(from);
  if (child < 0) throw base::IoError(fmt::format("no {}", from.string()));
  if (find(to) >= 0) throw base::IoError(fmt::format("{} exists", to.string()));
  log({.kind = Kind::rename,
       .node = expect(from.parent_path(), true),
       .name = from.filename().string(),
       .to = to.filename().string(),
       .child = child});
}

void CrashDisk::remove_file(const Path& path) {
  const std::lock_guard lock(mutex_);
  if (find(path) < 0) return;
  expect(path, false);
  log({.kind = Kind::unlink,
       .node = expect(path.parent_path(), true),
       .name = path.filename().string()});
}

void CrashDisk::remove_folder(const Path& path) {
  const std::lock_guard lock(mutex_);
  if (find(path) < 0) return;
  if (!nodes_[static_cast<size_t>(expect(path, true))].names.empty()) {
    throw base::IoError(fmt::format("{} is not empty", path.string()));
  }
  log({.kind = Kind::unlink,
       .node = expect(path.parent_path(), true),
       .name = path.filename().string()});
}

std::vector<ckpt::DiskEntry> CrashDisk::list(const Path& path) {
  const std::lock_guard lock(mutex_);
  std::vector<ckpt::DiskEntry> entries;
  for (const auto& [name, child] : nodes_[static_cast<size_t>(expect(path, true))].names) {
    entries.push_back({name, nodes_[static_cast<size_t>(child)].is_folder});
  }
  return entries;
}

bool CrashDisk::exists(const Path& path) {
  const std::lock_guard lock(mutex_);
  return find(path) >= 0;
}

size_t CrashDisk::operations() const {
  const std::lock_guard lock(mutex_);
  return log_.size();
}

std::vector<size_t> CrashDisk::after_large_writes() const {
  const std::lock_guard lock(mutex_);
  std::vector<size_t> found;
  for (size_t i = 0; i < log_.size(); ++i) {
    if (log_[i].bytes.size() >= 4096) found.push_back(i + 1);
  }
  return found;
}

int CrashDisk::find(const Path& path) const {
  int node = 0;
  for (const Path& part : path.relative_path()) {
    const auto& names = nodes_[static_cast<size_t>(node)].names;
    const auto found = names.find(part.string());
    if (found == names.end()) return -1;
    node = found->second;
  }
  return node;
}

int CrashDisk::expect(const Path& path, bool is_folder) const {
  const int node = find(path);
  if (node < 0 || nodes_[static_cast<size_t>(node)].is_folder != is_folder) {
    throw base::IoError(fmt::format("no {} {}", is_folder ? "folder" : "file", path.string()));
  }
  return node;
}

void CrashDisk::log(Operation operation) {
  Node& node = nodes_[static_cast<size_t>(operation.node)];
  if (operation.kind == Kind::write) {
    const size_t end = static_cast<size_t>(operation.offset) + operation.bytes.size();
    if (node.bytes.size() < end) node.bytes.resize(end);
    std::ranges::copy(operation.bytes, node.bytes.begin() + operation.offset);
  } else if (operation.kind == Kind::extend) {
    node.bytes.resize(static_cast<size_t>(operation.offset));
  } else {
    apply(operation, node.names);
  }
  node.log.push_back(log_.size());
  log_.push_back(std::move(operation));
}

void CrashDisk::apply(const Operation& operation, std::map<std::string, int>& names) {
  switch (operation.kind) {
    case Kind::link:
      names[operation.name] = operation.child;
      break;
    case Kind::unlink:
      names.erase(operation.name);
      break;
    case Kind::rename:
      names.erase(operation.name);
      names[operation.to] = operation.child;
      break;
    default:
      break;
  }
}

}  // namespace trireme::crashlab
