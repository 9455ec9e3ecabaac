// SPDX-License-Identifier: Apache-2.0
// JsonValue: a value of a JSON file with its place, so that every complaint names file, JSON path,
// what was found and what is supported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

// Keys are sorted: objects of a hundred thousand keys are read fast, and dump() is canonical.
using SortedJson = nlohmann::json;

// Returns the text of the file. Throws IoError if it cannot be read or contains NUL, which the
// parser would take for the end of the text.
std::string read_json_text(const std::filesystem::path& file);
// Throws IoError, which names the file, if the text is not JSON.
SortedJson parse_json(const std::string& text, const std::filesystem::path& file);
// Both.
SortedJson read_json(const std::filesystem::path& file);

class JsonValue {
 public:
  // Both must outlive this value.
  JsonValue(const SortedJson& value, const std::string& file) : value_(&value), file_(&file) {}

  // Throws ConfigError: "FILE: PATH: message".
  [[noreturn]] void fail(std::string_view message) const;
  // Throws ConfigError: "FILE: PATH: is FOUND; supported: LIST".
  [[noreturn]] void fail_supported(std::string_view supported) const;

  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }
  // The field of an object; nullopt if it is absent or null.
  std::optional<JsonValue> find(std::string_view key) const;
  JsonValue at(std::string_view key) const;  // must exist
  std::vector<JsonValue> items() const;      // of an array
  std::string string() const;                // valid UTF-8
  bool boolean() const;
  int64_t integer(int64_t min, int64_t max) const;
  // One character, returned as its text.
  std::string character() const;

  bool boolean_or(std::string_view key, bool fallback) const;
  // The field "type" of an object.
  std::string type() const { return at("type").string(); }
  const SortedJson& raw() const { return *value_; }
  // A value inside, with the path that it has.
  JsonValue inside(const SortedJson& value, std::string_view suffix) const;

 private:
  const SortedJson* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace trireme::text
