// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/system/durable_file.h"
#include "base/text/json.h"
#include "ckpt/hf/export_folder.h"
#include "ckpt/hf/hf_names.h"
#include "ckpt/hf/hf_stream.h"
#include "ckpt/hf/hf_weights.h"
#include "config/files/hf_config.h"

namespace trireme::ckpt {

namespace {

using base::ConfigError;
using base::IoError;
using std::filesystem::path;

void check_options(const ExportOptions& options);
path plain_target(const path& dir);
void copy_synced(const path& from, const path& to);
void put_in_place(const path& written, const path& dir);

// A folder that is removed with its content unless it was moved away.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(path where) : path_(std::move(where)) {
    std::filesystem::remove_all(path_);  // left by a killed process with the same number
    std::filesystem::create_directory(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const path& where() const { return path_; }

 private:
  path path_;
};

}  // namespace

void export_hf(const path& dir, const spec::ModelDims& dims, const ReadParam& read,
               const ExportOptions& options) {
  export_hf(dir, dims, boxes_of(hf_params(dims), read), options);
}

void export_hf(const path& dir, const spec::ModelDims& dims, const ReadBox& read,
               const ExportOptions& options) {
  check_options(options);
  const std::vector<HfParam> params = hf_params(dims);
  const std::vector<HfShard> shards =
      cut_into_shards(params, options.dtype, options.max_shard_bytes);
  const std::string config = config::hf_config_of(dims, options.dtype).dump(2) + "\n";
  try {
    const path target = plain_target(dir);
    check_replaceable(target, options);
    std::filesystem::create_directories(target.parent_path());
    const TemporaryFolder folder(target.parent_path() /
                                 export_draft_name(target.filename().string()));
    write_shards(folder.where(), shards, read, options.dtype);
    if (options.reread) compare_shards(folder.where(), shards, read, options.dtype);
    if (shards.size() > 1) {
      base::write_synced(folder.where() / "model.safetensors.index.json",
                         index_text(shards, options.dtype));
    }
    for (const path& extra : options.extra_files) {
      copy_synced(extra, folder.where() / extra.filename());
    }
    for (const NamedBytes& extra : options.extra_bytes) {
      base::write_synced(folder.where() / extra.name, extra.bytes);
    }
    base::write_synced(folder.where() / "config.json", config);
    base::sync_folder(folder.where());
    if (options.check) options.check(folder.where());
    put_in_place(folder.where(), target);
  } catch (const std::system_error& error) {
    throw IoError(fmt::format("{}: weights could not be written: {}", dir.string(), error.what()));
  }
}

namespace {

void check_options(const ExportOptions& options) {
  if (options.dtype != base::DType::f32 && options.dtype != base::DType::bf16) {
    throw ConfigError(fmt::format("weights cannot be exported as {}; allowed are f32 and bf16",
                                  base::name_of(options.dtype)));
  }
  if (options.max_shard_bytes < 1) {
    throw ConfigError(fmt::format("weights: the largest shard has {} bytes; at least 1 is wanted",
                                  options.max_shard_bytes));
  }
  std::set<path> names = {"config.json", "model.safetensors", "model.safetensors.index.json"};
  for (const path& extra : options.extra_files) {
    if (!std::filesystem::is_regular_file(extra)) {
      throw IoError(
          fmt::format("{}: is to be copied beside the weights, but is not a file", extra.string()));
    }
    if (!names.insert(extra.filename()).second) {
      throw ConfigError(
          fmt::format("{}: is to be copied beside the weights, but '{}' would be "
                      "written twice",
                      extra.string(), extra.filename().string()));
    }
  }
  for (const NamedBytes& extra : options.extra_bytes) {
    if (names.insert(extra.name).second) continue;
    throw ConfigError(fmt::format("'{}' would be written twice beside the weights", extra.name));
  }
}

// Returns the absolute path without a trailing slash, with links resolved.
path plain_target(const path& dir) {
  path target = std::filesystem::absolute(dir).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  if (std::filesystem::is_symlink(target)) target = std::filesystem::canonical(target);
  return target;
}

}  // namespace

// Anything else in the directory would be lost.
void check_replaceable(const path& dir, const ExportOptions& options) {
  if (!std::filesystem::exists(dir)) return;
  if (!std::filesystem::is_directory(dir)) {
    throw IoError(fmt::format("{}: weights go into a directory, and this is a file", dir.string()));
  }
  std::set<std::string> allowed = {"config.json", "model.safetensors.index.json", "README.md"};
  for (const char* name : tokenizer_files) allowed.insert(name);
  for (const path& extra : options.extra_files) allowed.insert(extra.filename().string());
  for (const NamedBytes& extra : options.extra_bytes) allowed.insert(extra.name);
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    const bool is_weights = name.starts_with("model") && name.ends_with(".safetensors");
    if (entry.is_directory() || !(is_weights || allowed.contains(name))) {
      throw IoError(
          fmt::format("{}: holds '{}', which would be lost; weights replace only a "
                      "directory of weights, so give another or an empty one",
                      dir.string(), name));
    }
  }
}

namespace {

void copy_synced(const path& from, const path& to) {
  std::ifstream in(from, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) throw IoError(fmt::format("{}: cannot be read", from.string()));
  base::write_synced(to, bytes);
}

// Renames `written` to `dir`. An existing `dir` is exchanged atomically if the file system supports
// it, and is left under the name `written` for the caller to remove.
void put_in_place(const path& written, const path& dir) {
  const unsigned exchange = RENAME_EXCHANGE;
  if (!std::filesystem::exists(dir)) {
    std::filesystem::rename(written, dir);
  } else if (::renameat2(AT_FDCWD, written.c_str(), AT_FDCWD, dir.c_str(), exchange) != 0) {
    if (errno != EINVAL && errno != ENOSYS) {
      throw std::system_error(errno, std::generic_category(), "exchange of the directories");
    }
    path old = dir;
    old += fmt::format(".old{}", ::getpid());
    std::filesystem::rename(dir, old);
    std::error_code failed;
    std::filesystem::rename(written, dir, failed);
    std::filesystem::rename(old, failed ? dir : written);
    if (failed) throw std::system_error(failed, "rename");
  }
  base::sync_folder(dir.parent_path());
}

}  // namespace

}  // namespace trireme::ckpt
