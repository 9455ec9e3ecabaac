// SPDX-License-Identifier: Apache-2.0
// Lines of small input files: prompts and tasks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

namespace trireme::cli {

// Calls `line` with every line that is not blank and its number from 1; without its line end. The
// file may be compressed (gzip, zstd); "-" is stdin. Throws IoError that names the file.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, std::string_view text)>& line);

}  // namespace trireme::cli
