// SPDX-License-Identifier: Apache-2.0
#include "board/assets.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace trireme::board {

void expect_assets() {
  if (!embedded_assets().empty()) return;
  throw base::ConfigError(
      "this build has no pages for the board and reports: install libjs-dygraphs, then configure "
      "and build again");
}

std::string_view media_type_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> types = {
      {{".html", "text/html; charset=utf-8"},
       {".js", "text/javascript; charset=utf-8"},
       {".css", "text/css; charset=utf-8"},
       {".svg", "image/svg+xml"}}};
  for (const auto& [end, type] : types) {
    if (name.ends_with(end)) return type;
  }
  return "application/octet-stream";
}

}  // namespace trireme::board
