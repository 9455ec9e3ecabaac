// SPDX-License-Identifier: Apache-2.0
// JsonLinesFile: results that appear in a file all at once, or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::cli {

class JsonLinesFile {
 public:
  // Throws IoError at once if the file could not be written later: the folder is missing or
  // read-only, or the path is a folder.
  explicit JsonLinesFile(std::filesystem::path path);
  ~JsonLinesFile();
  JsonLinesFile(const JsonLinesFile&) = delete;
  JsonLinesFile& operator=(const JsonLinesFile&) = delete;

  void add(std::string_view line) { text_.append(line).push_back('\n'); }
  // Replaces the file. Throws IoError; then an earlier file is unchanged.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  std::string text_;
  bool is_committed_ = false;
};

}  // namespace trireme::cli
