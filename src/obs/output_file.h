// SPDX-License-Identifier: Apache-2.0
// OutputFile: a file that is written piece by piece. Every piece is handed to the system before the
// call returns, so another process sees it at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/system/descriptor.h"

namespace trireme::obs {

class OutputFile {
 public:
  enum class Mode { replace, append };

  // All throw IoError that names the file and the reason. A named pipe is refused: it would wait
  // for its reader.
  OutputFile(std::filesystem::path path, Mode mode);
  void write(std::string_view bytes);
  // All bytes or, with an error, none: what was written of them is cut off, now or, where the
  // system refuses that too, before the next bytes.
  void write_whole(std::string_view bytes);
  // On the disk when it returns.
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  void cut_off();

  std::filesystem::path path_;
  base::Descriptor descriptor_;
  std::optional<int64_t> partial_from_;  // bytes from here on are not whole
};

}  // namespace trireme::obs
