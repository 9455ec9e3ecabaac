// SPDX-License-Identifier: Apache-2.0
// Weights in Hugging Face form: a directory with config.json and model.safetensors, or several
// shards and their index. GPT-2, Llama, Qwen2, Qwen3, Mixtral, Qwen3-MoE and OLMoE read what
// export_hf() writes; import_hf() reads what they write.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ckpt/named_bytes.h"
#include "spec/model.h"
#include "spec/parallel/shard.h"

namespace trireme::ckpt {

// Returns the whole parameter with our name (spec::params_of), row-major.
using ReadParam = std::function<std::vector<float>(const std::string& our_name)>;
// Fills `values` with the box [lo, hi) of the parameter, row-major. Piece::local is ignored.
using ReadBox = std::function<void(const std::string& our_name, const spec::Piece& box,
                                   std::span<float> values)>;
using WriteParam = std::function<void(const std::string& our_name, std::span<const float>)>;

// Consecutive elements of a parameter, from `element` on.
using WritePart = std::function<void(const std::string& our_name, int64_t element,
                                     std::span<const float> values)>;

// Returns the files of a tokenizer and others beside weights that do not describe them.
inline constexpr std::array tokenizer_files = {
    "tokenizer.json",     "tokenizer_config.json",   "tokenizer.model",   "vocab.json",
    "merges.txt",         "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "chat_template.json", "generation_config.json"};

struct ExportOptions {
  base::DType dtype = base::DType::f32;  // f32 or bf16
  // bytes of tensors; a larger tensor is its own shard
  int64_t max_shard_bytes = 5'000'000'000;
  // copied beside the weights, for example a tokenizer
  std::vector<std::filesystem::path> extra_files;
  // The same from memory.
  std::vector<NamedBytes> extra_bytes;
  // Before the directory is renamed into place, every tensor is read from its file and again from
  // `read`, and their hashes are compared; IoError names the first difference.
  bool reread = false;
  // Called with the written directory before it is renamed into place; an exception ends the
  // export.
  std::function<void(const std::filesystem::path& written)> check;
};

// Writes the directory under another name beside `dir`, syncs it and renames it to `dir`: a reader
// sees the old directory or the complete new one. Equal weights give equal bytes. Holds one
// parameter in memory, or with a ReadBox only windows (hf_stream.h). An existing `dir` is replaced
// only if it holds nothing but files of such a directory. Throws ConfigError for an option that is
// not allowed, and IoError if the directory cannot be written or replaced; then `dir` is unchanged
// and no temporary file is left.
void export_hf(const std::filesystem::path& dir, const spec::ModelDims&, const ReadParam& read,
               const ExportOptions& options);
void export_hf(const std::filesystem::path& dir, const spec::ModelDims&, const ReadBox& read,
               const ExportOptions& options);

// Throws IoError if export_hf() would refuse to replace `dir`.
void check_replaceable(const std::filesystem::path& dir, const ExportOptions& options);

// Reads a directory, an index (*.index.json) or a single safetensors file of F32, BF16, F16 or F64
// tensors. All names, shapes and types are checked before the first call of `write`, which is
// called once for every parameter of the model. Throws IoError that lists every missing, misshaped
// and unexpected tensor with its file. A value that is not finite also throws IoError, with the
// tensor, the position and the count; parameters before it have been written by then.
void import_hf(const std::filesystem::path& dir_or_file, const spec::ModelDims&,
               const WriteParam& write);
// The same in parts of at most 32 MiB, one parameter after another, each from front to back.
void import_hf_parts(const std::filesystem::path& dir_or_file, const spec::ModelDims&,
                     const WritePart& write);

// Throws what import_hf() throws before its first call of `write`; reads no values.
void expect_hf(const std::filesystem::path& dir_or_file, const spec::ModelDims&);

}  // namespace trireme::ckpt
