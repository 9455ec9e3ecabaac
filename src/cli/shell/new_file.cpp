// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/new_file.h"

#include <fmt/format.h>

#include <system_error>

#include "base/error.h"
#include "obs/run_dir.h"

namespace trireme::cli {

void check_new_file(const NewFile& file) {
  std::error_code unknown;
  if (file.may_replace || !std::filesystem::exists(file.path, unknown)) return;
  throw base::IoError(
      fmt::format("{}: already exists; give --overwrite to replace it, or another "
                  "{}",
                  file.path.string(), file.option));
}

void write_new_file(const NewFile& file, const std::string& text) {
  check_new_file(file);
  const std::filesystem::path folder = file.path.parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) {
    throw base::IoError(fmt::format("{}: cannot be made: {}", folder.string(), error.message()));
  }
  obs::write_file(file.path, text);
}

}  // namespace trireme::cli
