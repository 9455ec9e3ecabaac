// SPDX-License-Identifier: Apache-2.0
// OutputFile: a file that is written piece by piece. Every piece is handed to the system before the
// call returns, so another process sees it at once.
#pragma once

#include <filesystem>
#include <string_view>

namespace trireme::obs {

class OutputFile {
 public:
  enum class Mode { replace, append };

  // Both throw IoError that names the file and the reason.
  OutputFile(std::filesystem::path path, Mode mode);
  void write(std::string_view bytes);
  // On the disk when it returns.
  void sync();

  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace trireme::obs
