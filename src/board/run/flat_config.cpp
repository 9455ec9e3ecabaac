// SPDX-License-Identifier: Apache-2.0
#include "board/run/flat_config.h"

#include "base/text/json.h"
#include "board/request.h"

namespace trireme::board {
namespace {

void add_values(const base::Json& value, const std::string& key,
                std::map<std::string, std::string>& out) {
  constexpr size_t max_value_bytes = 120;
  if (value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      add_values(inner, key.empty() ? name : key + "." + name, out);
    }
    return;
  }
  if (key.empty() || key.starts_with("program.") || value.is_null()) return;
  const std::string text = value.is_string() ? value.get<std::string>() : text_of(value);
  if (text.size() <= max_value_bytes) out[key] = text;
}

}  // namespace

std::map<std::string, std::string> flat_config(const base::Json& config) {
  std::map<std::string, std::string> out;
  add_values(config, "", out);
  return out;
}

}  // namespace trireme::board
