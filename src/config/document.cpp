// SPDX-License-Identifier: Apache-2.0
#include "config/document.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/system/descriptor.h"
#include "base/text/json.h"
#include "config/config.h"
#include "config/schema.h"

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
    case Json::value_t::object: {
      NamedNumbers numbers;
      for (const auto& [name, element] : json.items()) {
        if (!element.is_number()) return Foreign{"a table"};
        numbers.emplace_back(name, element.get<double>());
      }
      return numbers;
    }
    default:
      return Foreign{"null"};
  }
}

// Is it an array of objects, as [[name]] of TOML?
bool is_list(const Json& json) {
  return json.is_array() && !json.empty() &&
         std::all_of(json.begin(), json.end(), [](const Json& one) { return one.is_object(); });
}

void add_list(const Json& list, const std::string& name, const std::string& file,
              std::vector<Entry>& entries);

void add_section(const Json& object, const std::string& section, const std::string& file,
                 std::vector<Entry>& entries) {
  entries.push_back({.section = section, .where = file, .is_section_start = true});
  for (const auto& [key, value] : object.items()) {
    if (!section.ends_with(']') && is_list(value)) {
      add_list(value, section + "." + key, file, entries);
    } else {
      entries.push_back({.section = section, .key = key, .value = value_of(value), .where = file});
    }
  }
}

void add_list(const Json& list, const std::string& name, const std::string& file,
              std::vector<Entry>& entries) {
  for (size_t i = 0; i < list.size(); ++i) {
    add_section(list[i], element_section(name, i), file, entries);
  }
}

// Reads in blocks until the end, because the size of a pipe is unknown.
std::string read_all(int descriptor, const std::string& name) {
  constexpr size_t max_bytes = 16 << 20;
  std::array<char, 1 << 16> block;
  std::string text;
  for (;;) {
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw base::IoError(
          fmt::format("{}: cannot be read: {}", name, std::generic_category().message(errno)));
    }
    if (count == 0) return text;
    text.append(block.data(), static_cast<size_t>(count));
    if (text.size() > max_bytes) {
      throw base::IoError(fmt::format("{}: a configuration has at most {} bytes", name, max_bytes));
    }
  }
}

std::string read_whole(const std::filesystem::path& path) {
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value() < 0) {
    throw base::IoError(fmt::format("{}: cannot be read: {}", path.string(),
                                    std::generic_category().message(errno)));
  }
  return read_all(file.value(), path.string());
}

bool is_standard_input(const std::filesystem::path& path) {
  return path == "-" || path == "/dev/stdin" || path == "/dev/fd/0" || path == "/proc/self/fd/0";
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw base::ConfigError(fmt::format("{}: no such file", path.string()));
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw base::IoError(fmt::format("{}: not a file", path.string()));
  }
  return read_whole(path);
}

ConfigText read_config_text(const std::filesystem::path& path) {
  const std::string name = path.string();
  if (is_standard_input(path)) return {"<stdin>", "", read_all(STDIN_FILENO, "<stdin>")};
  const bool is_descriptor = name.starts_with("/dev/fd/") || name.starts_with("/proc/self/fd/");
  return {name, is_descriptor ? std::filesystem::path() : path.parent_path(),
          is_read_once(path) ? read_whole(path) : read_text(path)};
}

bool is_read_once(const std::filesystem::path& path) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  return is_standard_input(path) || std::filesystem::is_fifo(status) ||
         std::filesystem::is_character_file(status);
}

std::filesystem::path found_from(const std::filesystem::path& name,
                                 const std::filesystem::path& folder) {
  const std::filesystem::path beside = folder / name;
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
  constexpr size_t max_keys = 10'000;       // an object finds a key by a linear search
  std::vector<std::set<std::string>> keys;  // of every open object
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > deepest) {
      throw base::ConfigError(fmt::format("{}: nested deeper than {}", file, deepest));
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      auto key = parsed.get<std::string>();
      if (!keys.back().insert(key).second) {
        throw base::ConfigError(fmt::format("{}: duplicate key '{}'", file, key));
      }
      if (keys.back().size() > max_keys) {
        throw base::ConfigError(fmt::format("{}: more than {} keys in one object", file, max_keys));
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
    if (is_list(value)) {
      add_list(value, name, file, entries);
    } else if (value.is_object()) {
      add_section(value, name, file, entries);
    } else {
      entries.push_back({.section = "", .key = name, .value = value_of(value), .where = file});
    }
  }
  return entries;
}

}  // namespace trireme::config
