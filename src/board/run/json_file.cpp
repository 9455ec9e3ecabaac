// SPDX-License-Identifier: Apache-2.0
#include "board/run/json_file.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "base/text/json_depth.h"

namespace trireme::board {

std::optional<base::Json> parse_json(std::string_view text) {
  base::Json parsed = base::parse_shallow_json(text);
  if (parsed.is_discarded()) return std::nullopt;
  return parsed;
}

base::Result<base::Json> read_json(const std::filesystem::path& path) {
  using Failed = base::Result<base::Json>;
  std::error_code failed;
  const auto status = std::filesystem::status(path, failed);
  if (!std::filesystem::exists(status)) return Failed::no("is missing");
  if (!std::filesystem::is_regular_file(status)) return Failed::no("is no regular file");
  const uintmax_t bytes = std::filesystem::file_size(path, failed);
  if (failed) return Failed::no("cannot be read: " + failed.message());
  if (bytes > max_json_file_bytes) {
    return Failed::no(
        fmt::format("has {} bytes; the board reads {} at most", bytes, max_json_file_bytes));
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(bytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(bytes));
  if (in.bad() || !in.is_open()) return Failed::no("cannot be read");
  text.resize(static_cast<size_t>(in.gcount()));
  std::optional<base::Json> parsed = parse_json(text);
  if (!parsed) return Failed::no("is no JSON");
  return std::move(*parsed);
}

bool is_plain_or_absent(const std::filesystem::path& path) {
  std::error_code failed;
  const auto status = std::filesystem::status(path, failed);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

}  // namespace trireme::board
