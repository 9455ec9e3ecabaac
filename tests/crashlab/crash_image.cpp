// SPDX-License-Identifier: Apache-2.0
// Computes what a power cut leaves of a CrashDisk.
#include <algorithm>

#include "crash_disk.h"

namespace trireme::crashlab {
namespace {

// Chooses which of `count` unsynced items are on disk: all, none, the first ones, or any. When all
// cases are enumerated, the last rule includes the others.
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

}  // namespace

std::unique_ptr<ckpt::MemoryDisk> CrashDisk::image(size_t operations, Choices& choices) const {
  const std::lock_guard lock(mutex_);
  auto disk = std::make_unique<ckpt::MemoryDisk>();
  put(*disk, 0, "/", operations, choices);
  return disk;
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
  // The size may reach the disk before the bytes; the file then shows what the blocks held before.
  const uint64_t size_rule = choices.pick(choices.is_sampling() ? 3 : 2);
  if (size_rule != 0) bytes.resize(last_size, size_rule == 1 ? std::byte{0} : std::byte{0xa5});
  // Enumerates every case of small writes and pages of large ones; a sample has any sectors of
  // both.
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
