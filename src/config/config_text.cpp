// SPDX-License-Identifier: Apache-2.0
#include "config/config_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "config/layout.h"
#include "config/schema.h"

namespace trireme::config {
namespace {

constexpr char delete_character = '\x7f';

// Returns a basic string of TOML, with its quotes. JSON escapes the same characters in the same
// way, except for one that it allows.
std::string quoted(const std::string& text) {
  std::string result;
  try {
    for (const char c : base::Json(text).dump()) {
      if (c == delete_character) {
        result += "\\u007f";
      } else {
        result += c;
      }
    }
  } catch (const base::Json::exception&) {
    throw base::ConfigError(
        fmt::format("{}: not UTF-8, which a TOML file cannot contain; rename the file",
                    base::Json(text).dump(-1, ' ', true, base::Json::error_handler_t::replace)));
  }
  return result;
}

// A comment of TOML has no control characters except tabs.
std::string commented(const std::string& line) {
  const std::string valid =
      base::Json::parse(base::Json(line).dump(-1, ' ', true, base::Json::error_handler_t::replace));
  std::string result = "# ";
  for (const char c : valid) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = (byte < ' ' && c != '\t') || c == delete_character;
    result += is_control ? '?' : c;
  }
  return result + "\n";
}

// Keys that are written even if they have their default.
bool is_always_written(const std::string& path) {
  constexpr std::array<std::string_view, 9> paths = {"training.local_batch_size",
                                                     "training.global_batch_size",
                                                     "training.seq_len",
                                                     "precision.recipe",
                                                     "activation_checkpoint.mode",
                                                     "parallelism.data_parallel_replicate_degree",
                                                     "parallelism.data_parallel_shard_degree",
                                                     "parallelism.tensor_parallel_degree",
                                                     "parallelism.pipeline_parallel_degree"};
  return std::ranges::find(paths, path) != paths.end();
}

}  // namespace

std::string config_text(const spec::Workload& work, const spec::Layout& layout,
                        const ConfigHead& head) {
  TRIREME_CHECK(!layout.custom_schedule, "a custom schedule needs a separate file");
  Config c, fresh;
  set_layout(c, spec::opened(layout));
  c.training.global_batch_size = layout.global_batch();
  c.training.seq_len = work.seq_len;
  c.training.document_mask = work.document_mask;
  std::string text;
  std::istringstream lines(head.comment);
  for (std::string line; std::getline(lines, line);) text += commented(line);
  text += fmt::format("[model]\nname = {}\n", quoted(head.model));
  std::string_view section = "model";
  const std::vector<Key> keys = keys_of(c), defaults = keys_of(fresh);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].path() == "training.dtype") continue;  // precision.recipe is written
    const bool is_path = keys[i].path() == "training.dataset_path";
    if (!is_path && !is_always_written(keys[i].path()) &&
        value_json(keys[i]) == value_json(defaults[i])) {
      continue;
    }
    if (keys[i].section != section) text += fmt::format("\n[{}]\n", keys[i].section);
    section = keys[i].section;
    text += fmt::format("{} = {}{}\n", keys[i].name, value_text(keys[i]),
                        is_path ? "  # fill in, or give as --training.dataset_path=PATH" : "");
  }
  return text;
}

}  // namespace trireme::config
