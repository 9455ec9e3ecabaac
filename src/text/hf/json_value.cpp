// SPDX-License-Identifier: Apache-2.0
#include "text/hf/json_value.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

// The value as JSON, cut to a length that fits a message.
std::string shown(const SortedJson& value) {
  constexpr size_t max_bytes = 60;
  if (value.is_object()) return fmt::format("an object of {} keys", value.size());
  if (value.is_array()) return fmt::format("an array of {} values", value.size());
  std::string text = value.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
  if (text.size() > max_bytes) {
    size_t end = max_bytes;
    while (end > 0 && is_continuation(text[end])) --end;
    text = text.substr(0, end) + "...";
  }
  return text;
}

}  // namespace

std::string read_json_text(const std::filesystem::path& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw base::IoError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  std::ostringstream read;
  read << in.rdbuf();
  std::string text = std::move(read).str();
  if (in.bad()) throw base::IoError(file.string() + ": cannot be read to its end");
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    throw base::IoError(fmt::format("{}: is not valid JSON: NUL at byte {} of {}", file.string(),
                                    nul, text.size()));
  }
  return text;
}

SortedJson parse_json(const std::string& text, const std::filesystem::path& file) {
  try {
    return SortedJson::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw base::IoError(fmt::format("{}: is not valid JSON: {}", file.string(), error.what()));
  }
}

SortedJson read_json(const std::filesystem::path& file) {
  return parse_json(read_json_text(file), file);
}

void JsonValue::fail(std::string_view message) const {
  throw base::ConfigError(
      fmt::format("{}: {}: {}", *file_, path_.empty() ? "the file" : path_, message));
}

void JsonValue::fail_supported(std::string_view supported) const {
  fail(fmt::format("is {}; supported: {}", shown(*value_), supported));
}

JsonValue JsonValue::inside(const SortedJson& value, std::string_view suffix) const {
  JsonValue made(value, *file_);
  made.path_ = path_.empty() && suffix.starts_with('.') ? std::string(suffix.substr(1))
                                                        : path_ + std::string(suffix);
  return made;
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!value_->is_object()) fail_supported("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return inside(*found, fmt::format(".{}", key));
}

JsonValue JsonValue::at(std::string_view key) const {
  auto found = find(key);
  if (!found) fail(fmt::format("the key '{}' is missing", key));
  return *found;
}

std::vector<JsonValue> JsonValue::items() const {
  if (!value_->is_array()) fail_supported("an array");
  std::vector<JsonValue> values;
  values.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    values.push_back(inside((*value_)[i], fmt::format("[{}]", i)));
  }
  return values;
}

std::string JsonValue::string() const {
  if (!value_->is_string()) fail_supported("a string");
  return value_->get<std::string>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail_supported("true or false");
  return value_->get<bool>();
}

int64_t JsonValue::integer(int64_t min, int64_t max) const {
  const bool is_small = value_->is_number_integer() &&
                        (!value_->is_number_unsigned() || value_->get<uint64_t>() <= INT64_MAX);
  if (!is_small || value_->get<int64_t>() < min || value_->get<int64_t>() > max) {
    fail_supported(fmt::format("an integer from {} to {}", min, max));
  }
  return value_->get<int64_t>();
}

std::string JsonValue::character() const {
  std::string text = string();
  if (text.empty() || code_point_at(text.data()).bytes != text.size()) {
    fail_supported("a string of one character");
  }
  return text;
}

bool JsonValue::boolean_or(std::string_view key, bool fallback) const {
  const auto found = find(key);
  return found ? found->boolean() : fallback;
}

}  // namespace trireme::text
