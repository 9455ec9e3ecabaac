// SPDX-License-Identifier: Apache-2.0
// OutputFile: a file that is written piece by piece. Every piece is passed to the system before the
// call returns, so that other processes see it at once.
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

  // All functions throw IoError with the file and the reason. A named pipe is refused, because
  // opening it would wait for its reader.
  OutputFile(std::filesystem::path path, Mode mode);
  void write(std::string_view bytes);
  // Writes all bytes or, with an error, none: partly written bytes are removed now or, if the
  // system refuses that, too, before the next write.
  void write_all_or_none(std::string_view bytes);
  // Returns when all bytes are on the disk.
  void sync();

  const std::filesystem::path& path() const { return path_; }

 private:
  void cut_off();

  std::filesystem::path path_;
  base::Descriptor descriptor_;
  std::optional<int64_t> partial_from_;  // bytes from here on are incomplete
};

}  // namespace trireme::obs
