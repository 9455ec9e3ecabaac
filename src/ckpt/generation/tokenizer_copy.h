// SPDX-License-Identifier: Apache-2.0
// The files of a tokenizer inside a checkpoint, in its folder "tokenizer": what belongs to the
// weights travels with them.
#pragma once

#include <filesystem>
#include <vector>

#include "ckpt/disk/disk.h"
#include "ckpt/named_bytes.h"

namespace trireme::ckpt {

inline constexpr const char* tokenizer_folder_name = "tokenizer";

// Writes and syncs the files into a draft, before it is committed; none: does nothing. Throws
// IoError.
void write_tokenizer(Disk&, const std::filesystem::path& draft_folder,
                     const std::vector<NamedBytes>& files);

// Returns the files of a checkpoint's tokenizer, sorted by name; empty: it has none. Throws
// IoError.
std::vector<NamedBytes> read_tokenizer(Disk&, const std::filesystem::path& generation);

}  // namespace trireme::ckpt
