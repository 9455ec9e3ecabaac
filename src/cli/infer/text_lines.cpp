// SPDX-License-Identifier: Apache-2.0
#include "cli/infer/text_lines.h"

#include <array>
#include <string>

#include "data/readers/byte_stream.h"

namespace trireme::cli {

void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, std::string_view text)>& line) {
  data::ShardStream stream(path);
  std::array<std::byte, 1 << 16> block;
  std::string text;
  int64_t number = 0;
  const auto flush = [&] {
    ++number;
    if (text.ends_with('\r')) text.pop_back();
    if (text.find_first_not_of(" \t") != std::string::npos) line(number, text);
    text.clear();
  };
  while (const size_t count = stream.read(block)) {
    std::string_view bytes(reinterpret_cast<const char*>(block.data()), count);
    for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
      text += bytes.substr(0, end);
      flush();
      bytes.remove_prefix(end + 1);
    }
    text += bytes;
  }
  if (!text.empty()) flush();
}

}  // namespace trireme::cli
