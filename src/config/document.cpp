// SPDX-License-Identifier: Apache-2.0
#include "config/document.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"

namespace trireme::config {
namespace {

using base::Json;

Value value_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value > static_cast<uint64_t>(INT64_MAX)) {
        return Foreign{fmt::format("the integer {}, which is above 2^63 - 1", value)};
      }
      return static_cast<int64_t>(value);
    }
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::array: {
      std::vector<int64_t> numbers;
      for (const Json& element : json) {
        const Value value = value_of(element);
        if (!std::holds_alternative<int64_t>(value)) return Foreign{"an array"};
        numbers.push_back(std::get<int64_t>(value));
      }
      return numbers;
    }
    case Json::value_t::object:
      return Foreign{"a table"};
    default:
      return Foreign{"null"};
  }
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  constexpr uintmax_t most_bytes = 16 << 20;
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw base::IoError(fmt::format("{}: no such file", path.string()));
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw base::IoError(fmt::format("{}: not a file", path.string()));
  }
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > most_bytes) {
    throw base::IoError(fmt::format("{}: {} bytes; a configuration has at most {}", path.string(),
                                    bytes, most_bytes));
  }
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (error || !in) throw base::IoError(fmt::format("{}: cannot be read", path.string()));
  return text;
}

std::filesystem::path found_from(const std::filesystem::path& name,
                                 const std::filesystem::path& configuration) {
  const std::filesystem::path beside = configuration.parent_path() / name;
  std::error_code ignored;
  return !std::filesystem::exists(name, ignored) && std::filesystem::exists(beside, ignored)
             ? beside
             : name;
}

std::vector<std::string> toml_names(const std::vector<std::filesystem::path>& folders) {
  std::set<std::string> names;
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      if (it->path().extension() == ".toml") names.insert(it->path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

bool looks_like_json(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

Json parse_json(const std::string& text, const std::string& file) {
  constexpr int deepest = 32;
  constexpr size_t most_keys = 10'000;      // an object finds a key by looking at all of them
  std::vector<std::set<std::string>> keys;  // of every object that is open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > deepest) {
      throw base::ConfigError(fmt::format("{}: nested deeper than {}", file, deepest));
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      auto key = parsed.get<std::string>();
      if (!keys.back().insert(key).second) {
        throw base::ConfigError(fmt::format("{}: key '{}' stands twice", file, key));
      }
      if (keys.back().size() > most_keys) {
        throw base::ConfigError(
            fmt::format("{}: more than {} keys in one object", file, most_keys));
      }
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw base::ConfigError(fmt::format("{}: not JSON: {}", file, error.what()));
  }
}

std::vector<Entry> entries_of_json(const Json& json, const std::string& file) {
  TRIREME_CHECK(json.is_object(), "{}: not an object", file);
  std::vector<Entry> entries;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_object()) {
      entries.push_back({.section = "", .key = name, .value = value_of(value), .where = file});
      continue;
    }
    entries.push_back({.section = name, .where = file, .is_section_start = true});
    for (const auto& [key, inner] : value.items()) {
      entries.push_back({.section = name, .key = key, .value = value_of(inner), .where = file});
    }
  }
  return entries;
}

}  // namespace trireme::config
