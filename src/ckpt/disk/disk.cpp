// SPDX-License-Identifier: Apache-2.0
#include "ckpt/disk/disk.h"

#include <fmt/core.h>

namespace trireme::ckpt {
namespace {

// Returns an empty list if the folder no longer exists.
std::vector<DiskEntry> entries_if_there(Disk& disk, const Disk::Path& folder) {
  try {
    return disk.list(folder);
  } catch (const base::IoError&) {
    if (disk.exists(folder)) throw;
    return {};
  }
}

}  // namespace

std::string read_text(Disk& disk, const Disk::Path& path, int64_t limit_bytes) {
  const auto file = disk.open(path);
  const int64_t bytes = file->size();
  if (bytes > limit_bytes) {
    throw base::IoError(fmt::format("{}: the file has {} bytes; at most {} are allowed",
                                    path.string(), bytes, limit_bytes));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file->read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text(Disk& disk, const Disk::Path& path, std::string_view text) {
  const auto file = disk.create(path, 0);
  file->write_at(0, std::as_bytes(std::span(text)));
  file->sync();
}

void remove_all(Disk& disk, const Disk::Path& folder) {
  if (disk.is_link(folder)) return disk.remove_file(folder);
  for (const DiskEntry& entry : entries_if_there(disk, folder)) {
    if (entry.is_folder) {
      remove_all(disk, folder / entry.name);
    } else {
      disk.remove_file(folder / entry.name);
    }
  }
  disk.remove_folder(folder);
}

}  // namespace trireme::ckpt
