// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/durable_file.h"
#include "base/error.h"
#include "base/json.h"
#include "ckpt/hf_names.h"
#include "ckpt/hf_weights.h"
#include "ckpt/safetensors.h"
#include "config/hf_config.h"

namespace trireme::ckpt {

namespace {

using base::ConfigError;
using base::IoError;
using base::Json;
using std::filesystem::path;

// A tensor on its way into a shard.
struct Placed {
  const HfParam* param;
  const HfTensor* tensor;
};

struct Shard {
  std::string file;
  std::vector<Placed> tensors;
};

void check_options(const ExportOptions& options);
path plain_target(const path& dir);
void check_replaceable(const path& dir, const ExportOptions& options);
std::vector<Shard> cut_into_shards(const std::vector<HfParam>& params,
                                   const ExportOptions& options);
void write_shards(const path& folder, const std::vector<Shard>& shards, const ReadParam& read,
                  base::DType dtype);
std::string index_text(const std::vector<Shard>& shards, base::DType dtype);
void copy_synced(const path& from, const path& to);
void put_in_place(const path& written, const path& dir);

// A folder that is removed with its content, unless it was moved away.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(path where) : path_(std::move(where)) {
    std::filesystem::remove_all(path_);  // of a process that was killed and had our number
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
  check_options(options);
  const std::vector<HfParam> params = hf_params(dims);
  const std::vector<Shard> shards = cut_into_shards(params, options);
  const std::string config = config::hf_config_of(dims, options.dtype).dump(2) + "\n";
  try {
    const path target = plain_target(dir);
    check_replaceable(target, options);
    std::filesystem::create_directories(target.parent_path());
    path beside = target;
    beside += fmt::format(".tmp{}", ::getpid());
    const TemporaryFolder folder(beside);
    write_shards(folder.where(), shards, read, options.dtype);
    if (shards.size() > 1) {
      base::write_synced(folder.where() / "model.safetensors.index.json",
                         index_text(shards, options.dtype));
    }
    for (const path& extra : options.extra_files) {
      copy_synced(extra, folder.where() / extra.filename());
    }
    base::write_synced(folder.where() / "config.json", config);
    base::sync_folder(folder.where());
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
}

// Absolute, without a trailing slash, and where a link points to.
path plain_target(const path& dir) {
  path target = std::filesystem::absolute(dir).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  if (std::filesystem::is_symlink(target)) target = std::filesystem::canonical(target);
  return target;
}

// Whatever else lies in the directory would be lost.
void check_replaceable(const path& dir, const ExportOptions& options) {
  if (!std::filesystem::exists(dir)) return;
  if (!std::filesystem::is_directory(dir)) {
    throw IoError(fmt::format("{}: weights go into a directory, and this is a file", dir.string()));
  }
  std::set<std::string> allowed = {"config.json",
                                   "generation_config.json",
                                   "model.safetensors.index.json",
                                   "tokenizer.json",
                                   "tokenizer_config.json",
                                   "tokenizer.model",
                                   "vocab.json",
                                   "merges.txt",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "chat_template.jinja",
                                   "README.md"};
  for (const path& extra : options.extra_files) allowed.insert(extra.filename().string());
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

// In the order of the model, each as full as the limit allows.
std::vector<Shard> cut_into_shards(const std::vector<HfParam>& params,
                                   const ExportOptions& options) {
  std::vector<Shard> shards(1);
  int64_t bytes = 0;
  for (const HfParam& param : params) {
    for (const HfTensor& tensor : param.tensors) {
      const int64_t more = tensor.elements() * base::size_of(options.dtype);
      if (bytes > 0 && bytes + more > options.max_shard_bytes) {
        shards.emplace_back();
        bytes = 0;
      }
      shards.back().tensors.push_back({&param, &tensor});
      bytes += more;
    }
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

// The tensor's elements in the order and type of the file.
std::vector<std::byte> file_bytes(const Placed& placed, const std::vector<float>& param,
                                  base::DType dtype) {
  const HfTensor& tensor = *placed.tensor;
  const int64_t columns = placed.param->columns();
  const float* rows = param.data() + tensor.first_row * columns;
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.elements() * base::size_of(dtype)));
  size_t at = 0;
  const auto put = [&](float value) {
    if (dtype == base::DType::bf16) {
      const base::Bf16 rounded(value);
      std::memcpy(bytes.data() + at, &rounded.bits, sizeof(rounded.bits));
      at += sizeof(rounded.bits);
    } else {
      std::memcpy(bytes.data() + at, &value, sizeof(value));
      at += sizeof(value);
    }
  };
  if (tensor.is_transposed) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < tensor.rows; ++r) put(rows[r * columns + c]);
    }
  } else {
    for (int64_t i = 0; i < tensor.rows * columns; ++i) put(rows[i]);
  }
  return bytes;
}

void write_shards(const path& folder, const std::vector<Shard>& shards, const ReadParam& read,
                  base::DType dtype) {
  // The tensors of a fused parameter follow each other, perhaps across shards: it is read once.
  const HfParam* current = nullptr;
  std::vector<float> values;
  for (const Shard& shard : shards) {
    std::vector<std::vector<std::byte>> storage;
    std::map<std::string, SafetensorsView, std::less<>> views;
    for (const Placed& placed : shard.tensors) {
      if (placed.param != current) {
        current = placed.param;
        values = read(current->name);
        TRIREME_CHECK(static_cast<int64_t>(values.size()) == current->elements(),
                      "{}: {} values were read, {} are wanted", current->name, values.size(),
                      current->elements());
      }
      storage.push_back(file_bytes(placed, values, dtype));
      views[placed.tensor->name] = {.dtype = dtype == base::DType::bf16 ? "BF16" : "F32",
                                    .shape = placed.tensor->shape,
                                    .bytes = storage.back()};
    }
    write_safetensors(folder / shard.file, views, {{"format", "pt"}});
  }
}

std::string index_text(const std::vector<Shard>& shards, base::DType dtype) {
  int64_t total = 0;
  std::map<std::string, std::string> file_of;
  for (const Shard& shard : shards) {
    for (const Placed& placed : shard.tensors) {
      total += placed.tensor->elements() * base::size_of(dtype);
      file_of[placed.tensor->name] = shard.file;
    }
  }
  // Json looks a new key up among all others, so the long map is built in the sorted kind.
  nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", file_of}};
  return index.dump(2) + "\n";
}

void copy_synced(const path& from, const path& to) {
  std::ifstream in(from, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) throw IoError(fmt::format("{}: cannot be read", from.string()));
  base::write_synced(to, bytes);
}

// `written` takes the name `dir`. What was called so is exchanged in one step where the file system
// can, and is left under the name `written`, for the caller to remove.
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
