// SPDX-License-Identifier: Apache-2.0
// OutputFile: a file that is written piece by piece. Every piece is handed to the system before the
// call returns, so another process sees it at once.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/descriptor.h"

namespace trireme::obs {

class OutputFile {
 public:
  enum class Mode { replace, append };

  // Both throw IoError that names the file and the reason.
  OutputFile(std::filesystem::path path, Mode mode);
  void write(std::string_view bytes);
  // On the disk when it returns.
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  base::Descriptor descriptor_;
};

}  // namespace trireme::obs
