// SPDX-License-Identifier: Apache-2.0
// Writing that survives a crash: all bytes or an error, and on the disk before the call returns.
// All functions throw std::system_error; callers turn it into an IoError that names the purpose of
// the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace trireme::base {

void write_all(int descriptor, std::span<const std::byte> bytes);
void write_all_at(int descriptor, int64_t offset, std::span<const std::byte> bytes);

// Writes `text` into `path`, in place, and syncs it. For files in a folder that has no readers yet.
void write_synced(const std::filesystem::path& path, std::string_view text);

// Makes the creation, renaming and removal of files in `folder` durable.
void sync_folder(const std::filesystem::path& folder);

}  // namespace trireme::base
