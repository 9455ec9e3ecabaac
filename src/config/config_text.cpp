// SPDX-License-Identifier: Apache-2.0
#include "config/config_text.h"

#include <fmt/format.h>

#include <array>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "config/files/model_file.h"
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

// Keys of a layout that are written even if they have their default.
constexpr std::array<std::string_view, 9> always_written = {
    "training.local_batch_size",
    "training.global_batch_size",
    "training.seq_len",
    "precision.recipe",
    "activation_checkpoint.mode",
    "parallelism.data_parallel_replicate_degree",
    "parallelism.data_parallel_shard_degree",
    "parallelism.tensor_parallel_degree",
    "parallelism.pipeline_parallel_degree"};

// Returns the scalars of an object as keys, and after them its objects as sections.
std::string table_text(const base::Json& table, const std::string& section) {
  std::string text = fmt::format("\n[{}]\n", section), inner;
  for (const auto& [key, value] : table.items()) {
    if (value.is_object()) {
      inner += table_text(value, section + "." + key);
    } else {
      text += fmt::format("{} = {}\n", key,
                          value.is_string() ? quoted(value.get<std::string>()) : value.dump());
    }
  }
  return text + inner;
}

// Returns a configuration with defaults, and with as many elements in its lists.
Config fresh_like(const Config& c) {
  Config fresh;
  for (const List& list : lists()) list.resize(fresh, list.size(c));
  return fresh;
}

std::string head_text(const std::string& comment) {
  std::string text;
  std::istringstream lines(comment);
  for (std::string line; std::getline(lines, line);) text += commented(line);
  return text;
}

std::string key_text(const Key& key, const std::string* note, bool note_above) {
  const auto* const* words = std::get_if<std::string*>(&key.field);
  const std::string value = words != nullptr ? quoted(**words) : value_text(key);
  const bool has_note = note != nullptr && !note->empty();
  if (has_note && note_above) return fmt::format("{}{} = {}\n", head_text(*note), key.name, value);
  return has_note ? fmt::format("{} = {}  {}", key.name, value, commented(*note))
                  : fmt::format("{} = {}\n", key.name, value);
}

}  // namespace

std::string config_text(const spec::Workload& work, const spec::Layout& layout,
                        const ConfigHead& head) {
  TRIREME_CHECK(!layout.custom_schedule, "a custom schedule needs a separate file");
  Config c;
  set_layout(c, spec::opened(layout));
  c.model.name = head.model;
  c.training.global_batch_size = layout.global_batch();
  c.training.seq_len = work.seq_len;
  c.training.document_mask = work.document_mask;
  WrittenKeys written{.comment = head.comment};
  for (const std::string_view path : always_written) written.notes[std::string(path)] = "";
  written.notes["training.dataset_path"] = "fill in, or give as --training.dataset_path=PATH";
  return toml_text(c, written);
}

std::string toml_text(const Config& config, const WrittenKeys& written) {
  Config c = config, fresh = fresh_like(config);
  std::string text = head_text(written.comment);
  std::string section = "model";  // the first section, although job comes before it
  const std::vector<Key> keys = keys_of(c), defaults = keys_of(fresh);
  text += "[model]\n";
  std::string of_model, others;
  const auto note_of = [&](const Key& key) -> const std::string* {
    const auto note = written.notes.find(key.path());
    return note == written.notes.end() ? nullptr : &note->second;
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    const Key& key = keys[i];
    if (key.path() == "training.dtype") continue;
    const bool is_name = key.path() == "model.name";
    const std::string* note = note_of(key);
    if (!is_name && note == nullptr && value_json(key) == value_json(defaults[i])) continue;
    const std::string line = key_text(key, note, written.notes_above);
    if (key.section == "model") {
      of_model += line;
      continue;
    }
    if (key.section != section) {
      const bool is_element = key.section.ends_with(']');
      others += is_element
                    ? fmt::format("\n[[{}]]\n", key.section.substr(0, key.section.rfind('[')))
                    : fmt::format("\n[{}]\n", key.section);
    }
    section = key.section;
    others += line;
  }
  text += of_model;
  if (written.dims) text += table_text(to_json(*written.dims), "model.dims");
  return text + others;
}

}  // namespace trireme::config
