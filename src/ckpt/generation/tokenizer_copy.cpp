// SPDX-License-Identifier: Apache-2.0
#include "ckpt/generation/tokenizer_copy.h"

#include <algorithm>

namespace trireme::ckpt {

void write_tokenizer(Disk& disk, const std::filesystem::path& draft_folder,
                     const std::vector<NamedBytes>& files) {
  if (files.empty()) return;
  const std::filesystem::path folder = draft_folder / tokenizer_folder_name;
  disk.make_folder(folder);
  for (const NamedBytes& file : files) write_text(disk, folder / file.name, file.bytes);
  disk.sync_folder(folder);
}

std::vector<NamedBytes> read_tokenizer(Disk& disk, const std::filesystem::path& generation) {
  const std::filesystem::path folder = generation / tokenizer_folder_name;
  std::vector<NamedBytes> files;
  if (!disk.exists(folder)) return files;
  constexpr int64_t max_bytes = int64_t{1} << 30;
  for (const DiskEntry& entry : disk.list(folder)) {
    if (entry.is_folder) continue;
    files.push_back({entry.name, read_text(disk, folder / entry.name, max_bytes)});
  }
  std::ranges::sort(files, {}, &NamedBytes::name);
  return files;
}

}  // namespace trireme::ckpt
