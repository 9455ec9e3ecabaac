// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_gpu_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/system/durable_file.h"
#include "base/text/json.h"
#include "obs/terminal/table.h"

namespace trireme::cli {
namespace {

using base::Json;

// Scalars have the same syntax in JSON and TOML: quoting and escapes of strings, numbers, booleans.
std::string pairs_text(const Json& object) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_structured()) text += fmt::format("{} = {}\n", key, value.dump());
  }
  return text;
}

std::string cell(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool varies(const Json& list, const std::string& key) {
  return std::any_of(list.begin(), list.end(),
                     [&](const Json& entry) { return entry[key] != list.front()[key]; });
}

std::string list_text(const Json& list) {
  std::vector<obs::Column> columns;
  std::vector<std::vector<std::string>> rows(list.size());
  for (const auto& [key, first] : list.front().items()) {
    if (list.size() > 1 && !varies(list, key)) continue;
    columns.push_back({key, first.is_number() ? obs::Align::right : obs::Align::left});
    for (size_t i = 0; i < list.size(); ++i) rows[i].push_back(cell(list[i][key]));
  }
  return obs::table_text(columns, rows);
}

}  // namespace

std::string machine_file_text(const Json& figures) {
  std::string text = "# Written by trireme bench gpu. machines/README.md describes the format.\n";
  text += pairs_text(figures);
  for (const auto& [name, section] : figures.items()) {
    if (section.is_object()) text += fmt::format("\n[{}]\n{}", name, pairs_text(section));
    if (!section.is_array()) continue;
    for (const Json& entry : section) text += fmt::format("\n[[{}]]\n{}", name, pairs_text(entry));
  }
  return text;
}

std::string figures_text(const Json& figures) {
  std::string text;
  for (const auto& [name, section] : figures.items()) {
    if (section.is_array() && !section.empty()) {
      text += fmt::format("\n{}\n{}", name, list_text(section));
    }
    if (!section.is_object()) continue;
    std::vector<std::vector<std::string>> rows;
    for (const auto& [key, value] : section.items()) rows.push_back({key, cell(value)});
    text += fmt::format(
        "\n{}",
        obs::table_text(std::vector<obs::Column>{{name, obs::Align::left}, {"value"}}, rows));
  }
  return text;
}

void check_machine_file(const std::filesystem::path& path, bool may_replace) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw base::ConfigError(
        fmt::format("{}: is not a file; give a file with --out", path.string()));
  }
  if (std::filesystem::exists(status) && !may_replace) {
    throw base::ConfigError(fmt::format(
        "{}: already exists; give --overwrite to replace it, or another --out", path.string()));
  }
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!std::filesystem::is_directory(folder, error)) {
    throw base::ConfigError(
        fmt::format("{}: the folder {} does not exist; create it, or give another --out",
                    path.string(), folder.string()));
  }
}

void write_machine_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path temporary = path;
  temporary += fmt::format(".tmp{}", ::getpid());
  try {
    base::write_synced(temporary, text);
    std::filesystem::rename(temporary, path);
    base::sync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
  } catch (const std::system_error& error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw base::IoError(fmt::format("{}: could not be written: {}", path.string(), error.what()));
  }
}

}  // namespace trireme::cli
