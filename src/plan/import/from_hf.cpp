// SPDX-License-Identifier: Apache-2.0
#include "plan/import/from_hf.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/text/json.h"
#include "config/document.h"
#include "config/files/hf_config.h"

namespace trireme::plan {
namespace {

using base::Json;

int64_t count_of(const Json& json, std::string_view key, int64_t absent) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return absent;
  constexpr int64_t max = 1 << 30;
  if (!found->is_number_integer() || *found < 0 || *found > max) {
    throw base::ConfigError(
        fmt::format("{}: found {}, expected an integer from 0 to {}", key, found->dump(), max));
  }
  return found->get<int64_t>();
}

// Returns the number of leading layers without experts.
int64_t dense_layers_of(const Json& json) {
  if (count_of(json, "decoder_sparse_step", 1) != 1) {
    throw base::ConfigError(
        "decoder_sparse_step: only 1 is modelled (experts in every layer except the first ones)");
  }
  const auto found = json.find("mlp_only_layers");
  if (found == json.end() || !found->is_array()) return 0;
  for (size_t i = 0; i < found->size(); ++i) {
    if ((*found)[i] != i) {
      throw base::ConfigError(
          "mlp_only_layers: only the first layers may have no experts, for example [0, 1, 2]");
    }
  }
  return static_cast<int64_t>(found->size());
}

// Returns the sizes of a Qwen2-MoE, which the engine cannot train: its shared experts have a
// gate, which is left out. Absent keys have the defaults of transformers.
spec::ModelDims qwen2_moe_dims(const Json& json, const std::string& name) {
  Json plain = json;
  plain["model_type"] = "qwen2";
  spec::ModelDims dims = config::dims_from_hf(plain, name);
  spec::MoeSpec moe;
  moe.router.experts = count_of(json, "num_experts", 60);
  moe.router.chosen = count_of(json, "num_experts_per_tok", 4);
  moe.ffn = count_of(json, "moe_intermediate_size", 1408);
  moe.shared_ffn = count_of(json, "shared_expert_intermediate_size", 5632);
  dims.moe = moe;
  dims.dense_layers = static_cast<int>(dense_layers_of(json));
  return dims;
}

}  // namespace

Described from_hf(const Json& json, const std::string& name, int64_t seq_len) {
  if (!json.is_object()) throw base::ConfigError("Hugging Face config: expected an object");
  const auto found = json.find("model_type");
  const std::string type =
      found != json.end() && found->is_string() ? found->get<std::string>() : "(none)";
  const auto is_one_of = [&type](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), type) != names.end();
  };
  const bool is_qwen2_moe = type == "qwen2_moe";
  if (!is_qwen2_moe &&
      !is_one_of({"gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "olmoe"})) {
    throw base::ConfigError(
        fmt::format("Hugging Face config: model_type: {} is not supported; supported: gpt2, llama, "
                    "mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, olmoe",
                    type));
  }
  Described d;
  d.stack = trireme_stack();
  Json plain = json;
  if (plain.erase("quantization_config") > 0) {
    d.assumed.emplace_back("training in 16 bits, although the file's weights are quantized");
  }
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto dtype = plain.find(key);
    if (dtype == plain.end() || *dtype == "bfloat16" || dtype->is_null()) continue;
    const std::string stored = dtype->is_string() ? dtype->get<std::string>() : dtype->dump();
    d.assumed.push_back(fmt::format("training in bf16, although the file's weights are in {}{}",
                                    stored,
                                    stored == "float16" ? " (--precision fp16 for fp16)" : ""));
    break;
  }
  const spec::ModelDims dims =
      is_qwen2_moe ? qwen2_moe_dims(plain, name) : config::dims_from_hf(plain, name);
  d.job.model = spec::make_model(dims);
  if (!is_qwen2_moe) d.dims = dims;
  constexpr int64_t default_seq_len = 8192;
  d.job.seq_len = seq_len > 0 ? seq_len : std::min(dims.max_seq, default_seq_len);
  if (seq_len == 0) d.assumed.push_back(fmt::format("sequences of {} tokens", d.job.seq_len));
  if (seq_len < 0 || seq_len > dims.max_seq) {
    throw base::ConfigError(
        fmt::format("sequences of {} tokens: the model allows 1 to {}", seq_len, dims.max_seq));
  }
  return d;
}

Described from_hf_file(const std::string& path, int64_t seq_len) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file =
      fs::is_directory(path, ignored) ? fs::path(path) / "config.json" : fs::path(path);
  const Json json = config::parse_json(config::read_text(file), file.string());
  // config.json does not contain the model's name; its folder has it.
  const std::string folder = fs::absolute(file, ignored).parent_path().filename().string();
  const bool is_in_folder = file.filename() == "config.json" && !folder.empty();
  try {
    return from_hf(json, is_in_folder ? folder : file.stem().string(), seq_len);
  } catch (const base::ConfigError& error) {
    throw base::ConfigError(fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace trireme::plan
