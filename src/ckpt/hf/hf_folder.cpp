// SPDX-License-Identifier: Apache-2.0
#include "ckpt/hf/hf_folder.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "ckpt/hf/hf_decode.h"

namespace trireme::ckpt {

namespace {

using base::IoError;
using std::filesystem::path;
using Found = HfFolder::Found;
using FoundTensors = std::map<std::string, Found, std::less<>>;

std::vector<SafetensorsFile> open_files(const path& dir_or_file);
FoundTensors find_tensors(const std::vector<SafetensorsFile>& files, spec::Family family);
void check_tensors(const path& where, const spec::ModelDims& dims,
                   const std::vector<HfParam>& params, const FoundTensors& found);

std::string_view bare(std::string_view name, spec::Family family) {
  const std::string_view prefix = optional_prefix(family);
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

}  // namespace

HfFolder::HfFolder(const path& dir_or_file, const spec::ModelDims& dims)
    : family_(dims.family), params_(hf_params(dims)), files_(open_files(dir_or_file)) {
  found_ = find_tensors(files_, family_);
  check_tensors(dir_or_file, dims, params_, found_);
}

void HfFolder::read(const std::string& our_name, const spec::Piece& box,
                    std::span<float> values) const {
  const auto param = std::find_if(params_.begin(), params_.end(),
                                  [&](const HfParam& p) { return p.name == our_name; });
  TRIREME_CHECK(param != params_.end(), "the model has no parameter '{}'", our_name);
  for_each_matrix(*param, box, [&](spec::Range rows, spec::Range columns, int64_t element) {
    const int64_t count = (rows.end - rows.begin) * (columns.end - columns.begin);
    TRIREME_CHECK(element + count <= std::ssize(values), "{}: {} values, {} are wanted", our_name,
                  values.size(), element + count);
    read_rows(*param, rows, columns,
              values.subspan(static_cast<size_t>(element), static_cast<size_t>(count)));
  });
}

void HfFolder::read_rows(const HfParam& param, spec::Range wanted, spec::Range of_columns,
                         std::span<float> values) const {
  const int64_t first_column = of_columns.begin, columns = of_columns.end - of_columns.begin;
  std::vector<float> column;
  for (const HfTensor& tensor : param.tensors) {
    const int64_t begin = std::max(wanted.begin, tensor.first_row);
    const int64_t rows = std::min(wanted.end, tensor.first_row + tensor.rows) - begin;
    if (rows <= 0) continue;
    const SafetensorsView& view = *found_.find(bare(tensor.name, family_))->second.view;
    const int64_t first = begin - tensor.first_row;  // in the tensor
    float* const to = values.data() + (begin - wanted.begin) * columns;
    if (tensor.is_transposed) {
      column.resize(static_cast<size_t>(rows));
      for (int64_t c = 0; c < columns; ++c) {
        decode(view, (first_column + c) * tensor.rows + first, column);
        for (int64_t r = 0; r < rows; ++r) to[r * columns + c] = column[static_cast<size_t>(r)];
      }
    } else if (columns == param.columns()) {
      decode(view, first * columns, {to, static_cast<size_t>(rows * columns)});
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        decode(view, (first + r) * param.columns() + first_column,
               {to + r * columns, static_cast<size_t>(columns)});
      }
    }
    drop_pages(view.bytes);
  }
}

namespace {

nlohmann::json read_index(const path& index) {
  constexpr uintmax_t max_index_bytes = 100'000'000;
  std::error_code failed;
  const auto status = std::filesystem::status(index, failed);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw IoError(fmt::format("{}: is not a regular file", index.string()));
  }
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

// Returns the shards after checking that index and shards agree on every tensor.
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
    // A shard must be beside its index: a foreign index must not point outside the directory.
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

// A tied model may contain a second copy of its table; a different copy means that the model is not
// tied.
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
