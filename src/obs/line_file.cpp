// SPDX-License-Identifier: Apache-2.0
#include "obs/line_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::obs {
namespace {

// Returns the end of the last complete line of the file. Reads blocks from the end: after a power
// failure a file may end in megabytes of zeros.
uintmax_t end_of_lines(std::ifstream& in, uintmax_t size) {
  constexpr uintmax_t block_bytes = 1 << 16;
  std::string block;
  for (uintmax_t end = size; end > 0;) {
    const uintmax_t begin = end > block_bytes ? end - block_bytes : 0;
    block.resize(end - begin);
    in.seekg(static_cast<std::streamoff>(begin));
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    if (!in) return size;
    if (const size_t found = block.rfind('\n'); found != std::string::npos) {
      return begin + found + 1;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

const std::filesystem::path& cut_partial_line(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return path;  // OutputFile refuses pipes
  const uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed || size == 0) return path;
  std::ifstream in(path, std::ios::binary);
  const uintmax_t end = end_of_lines(in, size);
  if (!in) throw base::IoError(fmt::format("{}: cannot be read", path.string()));
  if (end < size) std::filesystem::resize_file(path, end, failed);
  if (failed) {
    throw base::IoError(fmt::format("{}: cannot be written: {}", path.string(), failed.message()));
  }
  return path;
}

void add_json_number(std::string& text, double value) {
  if (!std::isfinite(value)) {
    text += std::isnan(value) ? R"("NaN")" : value > 0 ? R"("Infinity")" : R"("-Infinity")";
    return;
  }
  const size_t begin = text.size();
  fmt::format_to(std::back_inserter(text), "{}", value);
  if (text.find_first_of(".e", begin) == std::string::npos) text += ".0";
}

void add_json_string(std::string& text, std::string_view value) {
  const auto is_plain = [](char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; };
  if (std::all_of(value.begin(), value.end(), is_plain)) {
    text += '"';
    text += value;
    text += '"';
  } else {
    text +=
        base::Json(std::string(value)).dump(-1, ' ', false, base::Json::error_handler_t::replace);
  }
}

}  // namespace trireme::obs
