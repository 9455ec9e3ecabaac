// SPDX-License-Identifier: Apache-2.0
#include "base/text/json_depth.h"

#include <algorithm>
#include <cstddef>

#include "base/text/json.h"

namespace trireme::base {

int json_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\\') ++i;
      if (c == '"') is_in_string = false;
      continue;
    }
    if (c == '"') is_in_string = true;
    if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return deepest;
}

Json parse_shallow_json(std::string_view text) {
  if (json_depth(text) > max_json_depth) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace trireme::base
