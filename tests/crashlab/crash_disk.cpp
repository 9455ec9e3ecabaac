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
  expect(path, false);
  log({.kind = Kind::unlink,
       .node = expect(path.parent_path(), true),
       .name = path.filename().string()});
}

void CrashDisk::remove_folder(const Path& path) {
  const std::lock_guard lock(mutex_);
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

std::unique_ptr<ckpt::MemoryDisk> CrashDisk::image(size_t operations, Choices& choices) const {
  const std::lock_guard lock(mutex_);
  auto disk = std::make_unique<ckpt::MemoryDisk>();
  put(*disk, 0, "/", operations, choices);
  return disk;
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

void CrashDisk::put(ckpt::MemoryDisk& image, int number, const Path& path, size_t operations,
                    Choices& choices) const {
  const Node& node = nodes_[static_cast<size_t>(number)];
  if (!node.is_folder) {
    image.put_file(path, bytes_after(node, operations, choices));
    return;
  }
  image.put_folder(path);
  for (const auto& [name, child] : names_after(node, operations, choices)) {
    put(image, child, path / name, operations, choices);
  }
}

// Which of `count` things that were not synced are there: all, none, the first ones, or any. When
// all cases are gone through, the last rule has the others in it.
class Survivors {
 public:
  Survivors(Choices& choices, size_t count) : choices_(choices) {
    if (!choices.is_sampling()) return;
    rule_ = std::min<uint64_t>(choices.pick(8), 3);
    if (rule_ == 2) first_ = choices.pick(count + 1);
  }
  bool operator()() {
    ++seen_;
    if (rule_ == 0) return true;
    if (rule_ == 1) return false;
    return rule_ == 2 ? seen_ <= first_ : choices_.pick(2) == 1;
  }

 private:
  Choices& choices_;
  uint64_t rule_ = 3, first_ = 0, seen_ = 0;
};

CrashDisk::Bytes CrashDisk::bytes_after(const Node& node, size_t operations,
                                        Choices& choices) const {
  Bytes bytes;
  std::vector<const Operation*> loose;
  for (const size_t at : node.log) {
    if (at >= operations) break;
    const Operation& operation = log_[at];
    if (operation.kind != Kind::sync) {
      loose.push_back(&operation);
      continue;
    }
    for (const Operation* done : loose) {
      const size_t end = static_cast<size_t>(done->offset) + done->bytes.size();
      if (bytes.size() < end) bytes.resize(end);
      std::ranges::copy(done->bytes, bytes.begin() + done->offset);
    }
    loose.clear();
  }
  if (loose.empty()) return bytes;
  size_t last_size = bytes.size();
  for (const Operation* operation : loose) {
    last_size =
        std::max(last_size, static_cast<size_t>(operation->offset) + operation->bytes.size());
  }
  // The size may be on the disk before the bytes are; then it has what the blocks held before.
  const uint64_t size_rule = choices.pick(choices.is_sampling() ? 3 : 2);
  if (size_rule != 0) bytes.resize(last_size, size_rule == 1 ? std::byte{0} : std::byte{0xa5});
  // Every case of small writes, and pages of large ones; a sample has any sectors of both.
  for (const Operation* operation : loose) {
    const size_t begin = static_cast<size_t>(operation->offset);
    const size_t end = begin + operation->bytes.size();
    if (begin == end || operation->kind == Kind::extend) continue;
    const bool is_large = end - begin > 2048;
    const size_t unit = (choices.is_sampling() ? choices.pick(2) == 0 : is_large) ? 4096 : 512;
    Survivors survives(choices, (end - begin) / unit + 1);
    for (size_t at = begin; at < end; at = at / unit * unit + unit) {
      const size_t until = std::min(end, at / unit * unit + unit);
      if (!survives()) continue;
      if (bytes.size() < until) bytes.resize(until);
      std::copy_n(operation->bytes.begin() + static_cast<std::ptrdiff_t>(at - begin), until - at,
                  bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return bytes;
}

std::map<std::string, int> CrashDisk::names_after(const Node& node, size_t operations,
                                                  Choices& choices) const {
  std::map<std::string, int> names;
  std::vector<const Operation*> loose;
  for (const size_t at : node.log) {
    if (at >= operations) break;
    const Operation& operation = log_[at];
    if (operation.kind != Kind::sync_names) {
      loose.push_back(&operation);
      continue;
    }
    for (const Operation* done : loose) apply(*done, names);
    loose.clear();
  }
  Survivors survives(choices, loose.size());
  for (const Operation* operation : loose) {
    if (survives()) apply(*operation, names);
  }
  return names;
}

ckpt::Hash hash_of(ckpt::MemoryDisk& disk) {
  std::string all;
  const auto take = [&](const auto& self, const ckpt::Disk::Path& folder) -> void {
    for (const ckpt::DiskEntry& entry : disk.list(folder)) {
      all += (folder / entry.name).string() + '\n';
      if (entry.is_folder) {
        self(self, folder / entry.name);
      } else {
        all += ckpt::to_hex(ckpt::hash_of(disk.bytes(folder / entry.name)));
      }
    }
  };
  take(take, "/");
  return ckpt::hash_of(all);
}

}  // namespace trireme::crashlab
