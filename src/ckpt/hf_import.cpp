// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "ckpt/hf_decode.h"
#include "ckpt/hf_names.h"
#include "ckpt/hf_weights.h"
#include "ckpt/safetensors.h"

namespace trireme::ckpt {

namespace {

using base::IoError;
using std::filesystem::path;

// A tensor of a file, by its name without the optional prefix.
struct Found {
  std::string name;  // as in the file
  const SafetensorsFile* file;
  const SafetensorsView* view;
};
using FoundTensors = std::map<std::string, Found, std::less<>>;

std::vector<SafetensorsFile> open_files(const path& dir_or_file);
FoundTensors find_tensors(const std::vector<SafetensorsFile>& files, spec::Family family);
void check_tensors(const path& where, const spec::ModelDims& dims,
                   const std::vector<HfParam>& params, const FoundTensors& found);

std::string_view bare(std::string_view name, spec::Family family) {
  const std::string_view prefix = optional_prefix(family);
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

// Calls write(element, values) for consecutive elements of our parameter that the tensor holds.
void for_each_part(const HfParam& param, const HfTensor& tensor, const SafetensorsView& view,
                   const std::function<void(int64_t element, std::span<const float>)>& write) {
  constexpr int64_t window_elements = int64_t{8} << 20;
  const int64_t columns = param.columns();
  const int64_t rows_at_once = std::max<int64_t>(1, window_elements / columns);
  std::vector<float> values, column;
  for (int64_t first = 0; first < tensor.rows; first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, tensor.rows - first);
    values.resize(static_cast<size_t>(rows * columns));
    if (tensor.is_transposed) {
      column.resize(static_cast<size_t>(rows));
      for (int64_t c = 0; c < columns; ++c) {
        decode(view, c * tensor.rows + first, column);
        for (int64_t r = 0; r < rows; ++r) {
          values[static_cast<size_t>(r * columns + c)] = column[static_cast<size_t>(r)];
        }
      }
    } else {
      decode(view, first * columns, values);
    }
    drop_pages(view.bytes);
    write((tensor.first_row + first) * columns, values);
  }
}

}  // namespace

void import_hf(const path& dir_or_file, const spec::ModelDims& dims, const WriteParam& write) {
  std::map<std::string, int64_t> elements;
  for (const HfParam& param : hf_params(dims)) elements[param.name] = param.elements();
  std::vector<float> values;
  import_hf_parts(dir_or_file, dims,
                  [&](const std::string& name, int64_t element, std::span<const float> part) {
                    values.resize(static_cast<size_t>(elements.at(name)));
                    std::copy(part.begin(), part.end(), values.begin() + element);
                    if (element + std::ssize(part) == std::ssize(values)) write(name, values);
                  });
}

void import_hf_parts(const path& dir_or_file, const spec::ModelDims& dims, const WritePart& write) {
  const std::vector<HfParam> params = hf_params(dims);
  const std::vector<SafetensorsFile> files = open_files(dir_or_file);
  const FoundTensors found = find_tensors(files, dims.family);
  check_tensors(dir_or_file, dims, params, found);
  for (const HfParam& param : params) {
    for (const HfTensor& tensor : param.tensors) {
      for_each_part(param, tensor, *found.find(bare(tensor.name, dims.family))->second.view,
                    [&](int64_t element, std::span<const float> values) {
                      write(param.name, element, values);
                    });
    }
  }
}

namespace {

nlohmann::json read_index(const path& index) {
  constexpr uintmax_t max_index_bytes = 100'000'000;
  std::error_code failed;
  const uintmax_t bytes = std::filesystem::file_size(index, failed);
  if (failed) {
    throw IoError(fmt::format("{}: cannot be opened: {}", index.string(), failed.message()));
  }
  if (bytes > max_index_bytes) {
    throw IoError(fmt::format("{}: has {} bytes; an index has at most {}", index.string(), bytes,
                              max_index_bytes));
  }
  std::ifstream in(index, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw IoError(fmt::format("{}: is not valid JSON: {}", index.string(), error.what()));
  }
}

// The shards, after checking that index and shards say the same of every tensor.
std::vector<SafetensorsFile> open_shards(const path& index) {
  const nlohmann::json json = read_index(index);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object() ||
      json["weight_map"].empty()) {
    throw IoError(
        fmt::format("{}: has no 'weight_map' of tensor names to file names", index.string()));
  }
  std::map<std::string, std::vector<std::string>> tensors_of;  // by file
  std::map<std::string, std::string, std::less<>> file_of;     // by tensor
  for (const auto& [name, value] : json["weight_map"].items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    // A shard lies beside its index: an index from elsewhere must not lead out of the directory.
    if (file.empty() || path(file).filename() != file || file == "." || file == "..") {
      throw IoError(
          fmt::format("{}: tensor '{}' is said to lie in {}; the name of a file beside "
                      "the index is wanted",
                      index.string(), name, value.dump()));
    }
    tensors_of[file].push_back(name);
    file_of[name] = file;
  }
  std::vector<SafetensorsFile> shards;
  for (const auto& [file, names] : tensors_of) {
    const path where = index.parent_path() / file;
    if (!std::filesystem::exists(where)) {
      throw IoError(
          fmt::format("{}: names the shard '{}' for {} tensors, but there is no such file",
                      index.string(), file, names.size()));
    }
    shards.push_back(SafetensorsFile::open(where));
    for (const std::string& name : names) {
      if (!shards.back().contains(name)) {
        throw IoError(fmt::format("{}: has no tensor '{}', which {} says it has", where.string(),
                                  name, index.filename().string()));
      }
    }
    for (const auto& [name, view] : shards.back().tensors()) {
      const auto listed = file_of.find(name);
      if (listed == file_of.end() || listed->second != file) {
        throw IoError(fmt::format(
            "{}: has a tensor '{}', which {} {}", where.string(), name, index.filename().string(),
            listed == file_of.end() ? "does not list" : "places in " + listed->second));
      }
    }
  }
  return shards;
}

std::vector<SafetensorsFile> open_files(const path& dir_or_file) {
  std::vector<SafetensorsFile> files;
  if (std::filesystem::is_directory(dir_or_file)) {
    const path single = dir_or_file / "model.safetensors";
    const path index = dir_or_file / "model.safetensors.index.json";
    if (std::filesystem::exists(single)) {
      files.push_back(SafetensorsFile::open(single));
      return files;
    }
    if (std::filesystem::exists(index)) return open_shards(index);
    const bool has_pickle = std::filesystem::exists(dir_or_file / "pytorch_model.bin") ||
                            std::filesystem::exists(dir_or_file / "pytorch_model.bin.index.json");
    throw IoError(fmt::format(
        "{}: has neither model.safetensors nor model.safetensors.index.json{}",
        dir_or_file.string(),
        has_pickle ? "; pytorch_model.bin is not read, save the model again as safetensors" : ""));
  }
  if (dir_or_file.string().ends_with(".index.json")) return open_shards(dir_or_file);
  files.push_back(SafetensorsFile::open(dir_or_file));
  return files;
}

FoundTensors find_tensors(const std::vector<SafetensorsFile>& files, spec::Family family) {
  FoundTensors found;
  for (const SafetensorsFile& file : files) {
    for (const auto& [name, view] : file.tensors()) {
      const auto [at, is_new] =
          found.emplace(std::string(bare(name, family)), Found{name, &file, &view});
      if (!is_new) {
        throw IoError(fmt::format("{}: tensor '{}' is there twice, also as '{}' in {}",
                                  file.path().string(), name, at->second.name,
                                  at->second.file->path().filename().string()));
      }
    }
  }
  return found;
}

// A tied model may come with a second copy of its table; one that says something else means that
// the model is not tied.
std::string check_tied_copy(const Found& head, const FoundTensors& found, std::string_view table) {
  const auto at = found.find(table);
  if (at == found.end()) return "";  // reported as missing
  const SafetensorsView& view = *at->second.view;
  if (head.view->shape == view.shape && head.view->dtype == view.dtype &&
      std::equal(view.bytes.begin(), view.bytes.end(), head.view->bytes.begin(),
                 head.view->bytes.end())) {
    return "";
  }
  return fmt::format("{}: '{}' {}[{}] differs from '{}' {}[{}], though the model's head is tied",
                     head.file->path().string(), head.name, head.view->dtype,
                     fmt::join(head.view->shape, ", "), at->second.name, view.dtype,
                     fmt::join(view.shape, ", "));
}

void check_tensors(const path& where, const spec::ModelDims& dims,
                   const std::vector<HfParam>& params, const FoundTensors& found) {
  std::vector<std::string> problems;
  std::map<std::string_view, const HfTensor*> wanted;
  for (const HfParam& param : params) {
    for (const HfTensor& tensor : param.tensors) {
      wanted[bare(tensor.name, dims.family)] = &tensor;
    }
  }
  for (const auto& [name, tensor] : wanted) {
    const auto at = found.find(name);
    if (at == found.end()) {
      problems.push_back(
          fmt::format("tensor '{}' [{}] is missing", tensor->name, fmt::join(tensor->shape, ", ")));
      continue;
    }
    const Found& have = at->second;
    if (have.view->shape != tensor->shape) {
      problems.push_back(fmt::format(
          "{}: tensor '{}' is [{}]; the model wants [{}]", have.file->path().string(), have.name,
          fmt::join(have.view->shape, ", "), fmt::join(tensor->shape, ", ")));
    } else if (!is_readable(have.view->dtype)) {
      problems.push_back(
          fmt::format("{}: tensor '{}' is of type {}; F32, BF16, F16 and F64 are "
                      "read",
                      have.file->path().string(), have.name, have.view->dtype));
    }
  }
  const std::string_view table = bare(params.front().tensors.front().name, dims.family);
  for (const auto& [name, have] : found) {
    if (wanted.contains(name) || is_constant(dims.family, name)) continue;
    if (name == "lm_head.weight" && dims.tied_head) {
      const std::string problem = check_tied_copy(have, found, table);
      if (!problem.empty()) problems.push_back(problem);
      continue;
    }
    problems.push_back(fmt::format("{}: tensor '{}' [{}] is not one of the model's",
                                   have.file->path().string(), have.name,
                                   fmt::join(have.view->shape, ", ")));
  }
  if (problems.empty()) return;
  constexpr size_t max_shown = 10;
  const size_t shown = std::min(problems.size(), max_shown);
  std::string text =
      fmt::format("{}: its weights are not those of model '{}' ({}, {} layers):", where.string(),
                  dims.name, spec::name_of(dims.family), dims.layers);
  for (size_t i = 0; i < shown; ++i) text += "\n  " + problems[i];
  if (shown < problems.size()) text += fmt::format("\n  and {} more", problems.size() - shown);
  throw IoError(text);
}

}  // namespace

}  // namespace trireme::ckpt
