// SPDX-License-Identifier: Apache-2.0
#include "cli/infer/json_lines_file.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/system/durable_file.h"

namespace trireme::cli {
namespace fs = std::filesystem;

JsonLinesFile::JsonLinesFile(fs::path path) : path_(std::move(path)), temporary_(path_) {
  temporary_ += ".tmp";
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) {
    throw base::IoError(fmt::format("{}: is a folder; name a file", path_.string()));
  }
  try {
    base::write_synced(temporary_, "");
  } catch (const std::system_error& error) {
    throw base::IoError(
        fmt::format("{}: cannot be written: {}", path_.string(), error.code().message()));
  }
}

JsonLinesFile::~JsonLinesFile() {
  std::error_code ignored;
  if (!is_committed_) fs::remove(temporary_, ignored);
}

void JsonLinesFile::commit() {
  try {
    base::write_synced(temporary_, text_);
    fs::rename(temporary_, path_);
  } catch (const std::system_error& error) {
    throw base::IoError(
        fmt::format("{}: cannot be written: {}", path_.string(), error.code().message()));
  }
  is_committed_ = true;
}

}  // namespace trireme::cli
