// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_beside.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/system/durable_file.h"
#include "base/text/json.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using base::IoError;

// Names that copy_tokenizer() writes.
constexpr std::array<std::string_view, 9> tokenizer_names = {"tokenizer.json",
                                                             "tokenizer.model",
                                                             "tokenizer_config.json",
                                                             "special_tokens_map.json",
                                                             "added_tokens.json",
                                                             "vocab.json",
                                                             "merges.txt",
                                                             "chat_template.jinja",
                                                             "chat_template.json"};

fs::path with_ending(fs::path prefix, const char* ending) {
  prefix += ending;
  return prefix;
}

std::string whole_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    throw IoError(fmt::format("{}: cannot be read", path.string()));
  }
  return bytes;
}

}  // namespace

fs::path data_prefix(const fs::path& data) {
  fs::path prefix = data;
  if (prefix.extension() == ".bin" || prefix.extension() == ".idx") prefix.replace_extension();
  return prefix;
}

fs::path tokenizer_folder_of(const fs::path& prefix) { return with_ending(prefix, ".tokenizer"); }

std::optional<fs::path> tokenizer_beside(const fs::path& data) {
  const fs::path folder = tokenizer_folder_of(data_prefix(data));
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return std::nullopt;
  return folder;
}

std::optional<base::Json> manifest_beside(const fs::path& data) {
  const fs::path path = with_ending(data_prefix(data), ".manifest.json");
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  base::Json manifest = base::Json::parse(whole_file(path), nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("trireme_data")) {
    throw IoError(fmt::format(
        "{}: is not a manifest of data build, which is a JSON object with the key trireme_data; "
        "remove it or build the data set again",
        path.string()));
  }
  return manifest;
}

std::string tokenizer_file_name(std::span<const fs::path> files, size_t index) {
  if (index > 0) return files[index].filename().string();
  return files[index].extension() == ".model" ? "tokenizer.model" : "tokenizer.json";
}

void remove_beside(const fs::path& data) {
  const fs::path prefix = data_prefix(data);
  std::error_code ignored;
  for (const char* ending : {".manifest.json", ".rejected.jsonl", ".mask.idx", ".mask.bin"}) {
    fs::remove(with_ending(prefix, ending), ignored);
  }
  const fs::path folder = tokenizer_folder_of(prefix);
  for (const std::string_view name : tokenizer_names) fs::remove(folder / name, ignored);
  fs::remove(folder, ignored);  // unless it has other files
}

void copy_tokenizer(std::span<const fs::path> files, const fs::path& to) {
  try {
    fs::create_directory(to);
    for (size_t i = 0; i < files.size(); ++i) {
      base::write_synced(to / tokenizer_file_name(files, i), whole_file(files[i]));
    }
    base::sync_folder(to);
  } catch (const std::system_error& error) {
    throw IoError(fmt::format("{}: the files of the tokenizer cannot be written: {}", to.string(),
                              error.code().message()));
  }
}

void check_replaceable_tokenizer(const fs::path& folder) {
  std::error_code error;
  const auto status = fs::symlink_status(folder, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) {
    throw base::ConfigError(fmt::format(
        "{}: is not a folder, and the tokenizer of the data set belongs there; give another output",
        folder.string()));
  }
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (std::find(tokenizer_names.begin(), tokenizer_names.end(), name) == tokenizer_names.end() ||
        !entry.is_regular_file(error)) {
      throw base::ConfigError(
          fmt::format("{}: is no file of a tokenizer and would be lost; move it, or give another "
                      "output",
                      entry.path().string()));
    }
  }
}

}  // namespace trireme::data
