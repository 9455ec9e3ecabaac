// SPDX-License-Identifier: Apache-2.0
// For tests: files of metrics.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace trireme::board {

inline void write_text(const std::filesystem::path& path, const std::string& text,
                       bool appends = false) {
  std::ofstream out(path, appends ? std::ios::binary | std::ios::app : std::ios::binary);
  out << text;
}

// `rest`: further members, such as "\"loss\":1.5".
inline std::string train_line(int64_t step, double time, const std::string& rest,
                              int64_t attempt = 1) {
  return fmt::format("{{\"kind\":\"train\",\"attempt\":{},\"step\":{},\"time\":{},{}}}\n", attempt,
                     step, time, rest);
}

}  // namespace trireme::board
