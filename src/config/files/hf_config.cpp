// SPDX-License-Identifier: Apache-2.0
#include "config/files/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text/count_text.h"
#include "base/text/json.h"
#include "config/files/hf_experts.h"
#include "config/files/hf_reader.h"
#include "config/numbers/decimal.h"

namespace trireme::config {
namespace {

using base::Json;

constexpr int64_t max_layers = 100'000;

// What the configuration classes of transformers assume for absent keys.
struct LlamaType {
  std::string_view name, architecture;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t max_seq = 32768;
  double norm_eps = 1e-6, rope_theta = 10000;
  bool has_experts = false;
};
constexpr std::array<LlamaType, 7> llama_types = {{
    {.name = "llama", .architecture = "Llama", .max_seq = 2048},
    {.name = "mistral", .architecture = "Mistral", .kv_heads = 8, .max_seq = 131072},
    {.name = "qwen2", .architecture = "Qwen2"},
    {.name = "qwen3", .architecture = "Qwen3", .head_dim = 128},
    {.name = "mixtral",
     .architecture = "Mixtral",
     .kv_heads = 8,
     .max_seq = 131072,
     .norm_eps = 1e-5,
     .rope_theta = 1e6,
     .has_experts = true},
    {.name = "qwen3_moe", .architecture = "Qwen3Moe", .kv_heads = 4, .has_experts = true},
    {.name = "olmoe",
     .architecture = "Olmoe",
     .max_seq = 4096,
     .norm_eps = 1e-5,
     .has_experts = true},
}};

const LlamaType* llama_type(std::string_view name) {
  const auto found = std::ranges::find(llama_types, name, &LlamaType::name);
  return found == llama_types.end() ? nullptr : &*found;
}

// Reads one form of the rotary settings: `object` contains rope_type and its parameters.
spec::RopeSpec rope_from(const Json& object, const std::string& prefix, double theta,
                         std::vector<std::string>& problems) {
  spec::RopeSpec rope{.theta = theta};
  if (!object.is_object()) {
    problems.push_back(
        fmt::format("{}: found {}, expected an object", prefix, HfReader::shown(object)));
    return rope;
  }
  HfReader in(object, prefix + ".", problems);
  rope.theta = in.number("rope_theta", theta);
  if (in.number("partial_rotary_factor", 1) != 1) {
    in.problem("partial_rotary_factor", "only 1 is supported");
  }
  const std::string type_key = in.find("rope_type") != nullptr ? "rope_type" : "type";
  const std::string type = in.text(type_key);
  if (type.empty() || type == "default") return rope;
  if (type != "llama3") {
    in.problem(type_key, fmt::format("\"{}\" is not supported; supported: default, llama3", type));
    return rope;
  }
  rope.scaling = spec::RopeScaling{
      .factor = in.number("factor", std::nullopt),
      .low_freq_factor = in.number("low_freq_factor", std::nullopt),
      .high_freq_factor = in.number("high_freq_factor", std::nullopt),
      .original_max_position = in.size("original_max_position_embeddings"),
  };
  return rope;
}

spec::RopeSpec read_rope(HfReader& in, double default_theta, std::vector<std::string>& problems) {
  const double theta = in.number("rope_theta", default_theta);
  const Json* old_form = in.find("rope_scaling");
  const Json* new_form = in.find("rope_parameters");
  const bool has_old = old_form != nullptr || in.find("rope_theta") != nullptr;
  spec::RopeSpec old_rope{.theta = theta};
  if (old_form != nullptr) old_rope = rope_from(*old_form, "rope_scaling", theta, problems);
  if (new_form == nullptr) return old_rope;
  const spec::RopeSpec new_rope = rope_from(*new_form, "rope_parameters", theta, problems);
  if (has_old && problems.empty() && !(old_rope == new_rope)) {
    in.problem("rope_parameters", "contradicts rope_theta and rope_scaling");
  }
  return new_rope;
}

void refuse_sliding_windows(HfReader& in, bool has_switch) {
  if (has_switch) {
    in.must_be_false("use_sliding_window", "every layer attends to all earlier tokens");
  } else {
    in.must_be_absent("sliding_window", "every layer attends to all earlier tokens");
  }
  const Json* types = in.find("layer_types");
  if (types == nullptr) return;
  for (const Json& type : *types) {
    if (type != "full_attention") {
      in.problem("layer_types", fmt::format("{} is not supported; supported: full_attention",
                                            HfReader::shown(type)));
      return;
    }
  }
}

// Longer sequences would need sliding-window attention. A missing key means the default window of
// transformers; null means none.
int64_t longest_within_window(HfReader& in, bool has_key, int64_t max_seq) {
  constexpr int64_t default_window = 4096;
  if (has_key && in.find("sliding_window") == nullptr) return max_seq;
  return std::min(max_seq, in.size("sliding_window", default_window));
}

void read_gpt2(HfReader& in, spec::ModelDims& d) {
  d.family = spec::Family::gpt2;
  d.layers = static_cast<int>(in.size("n_layer", std::nullopt, max_layers));
  d.hidden = in.size("n_embd");
  d.heads = in.size("n_head");
  d.kv_heads = d.heads;
  d.head_dim = d.hidden / d.heads;
  if (d.hidden % d.heads != 0) {
    in.problem("n_head", fmt::format("{} must divide n_embd = {}", d.heads, d.hidden));
  }
  d.ffn = in.size("n_inner", 4 * d.hidden);
  d.max_seq = in.size("n_positions", 1024);
  d.norm_eps = static_cast<float>(in.number("layer_norm_epsilon", 1e-5, 1));
  d.tied_head = true;
  in.must_be_one_of("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  in.must_be_false("scale_attn_by_inverse_layer_idx", "all layers scale attention alike");
  in.must_be_false("add_cross_attention", "the model is a decoder only");
  if (!in.boolean("scale_attn_weights", true)) {
    in.problem("scale_attn_weights", "false is not supported: attention is scaled");
  }
  if (!in.boolean("tie_word_embeddings", true)) {
    in.problem("tie_word_embeddings", "false is not supported: gpt2 has a tied head");
  }
}

void read_llama(HfReader& in, const Json& json, const LlamaType& type, spec::ModelDims& d,
                std::vector<std::string>& problems) {
  d.family = spec::Family::llama;
  d.layers = static_cast<int>(in.size("num_hidden_layers", std::nullopt, max_layers));
  d.hidden = in.size("hidden_size");
  d.heads = in.size("num_attention_heads");
  d.kv_heads = in.size("num_key_value_heads", type.kv_heads > 0 ? type.kv_heads : d.heads);
  const bool divides = in.find("head_dim") != nullptr || type.head_dim > 0;
  d.head_dim = in.size(
      "head_dim", type.head_dim > 0 ? type.head_dim : std::max<int64_t>(d.hidden / d.heads, 1));
  if (!divides && d.hidden % d.heads != 0) {
    in.problem(
        "num_attention_heads",
        fmt::format("{} must divide hidden_size = {} if head_dim is not given", d.heads, d.hidden));
  }
  d.max_seq = in.size("max_position_embeddings", type.max_seq);
  d.norm_eps = static_cast<float>(in.number("rms_norm_eps", type.norm_eps, 1));
  d.tied_head = in.boolean("tie_word_embeddings", false);
  d.qkv_bias = type.name == "qwen2";
  d.qk_norm = type.name == "qwen3";
  d.rope = read_rope(in, type.rope_theta, problems);
  in.must_be_one_of("hidden_act", {"silu", "swish"});
  in.must_be_false("mlp_bias", "the feed-forward has no biases");
  if (type.name != "qwen2") {
    in.must_be_false("attention_bias", "it means biases on q, k, v and the output projection");
  }
  if (type.has_experts) {
    read_experts(in, type.name, d);
  } else {
    d.ffn = in.size("intermediate_size");
  }
  if (d.qk_norm) d.qk_norm_eps = d.norm_eps;
  if (type.name == "mistral") {
    d.max_seq = longest_within_window(in, json.contains("sliding_window"), d.max_seq);
  } else if (type.name == "mixtral") {
    const int64_t window = in.size("sliding_window", d.max_seq);
    if (window < d.max_seq) {
      in.problem("sliding_window",
                 fmt::format("{} is not supported: every layer attends to all earlier tokens; "
                             "supported: null, or at least max_position_embeddings = {}",
                             window, d.max_seq));
    }
  } else {
    refuse_sliding_windows(in, type.name.starts_with("qwen"));
  }
}

std::string hf_dtype(base::DType dtype) {
  if (dtype == base::DType::f32) return "float32";
  if (dtype == base::DType::bf16) return "bfloat16";
  throw base::ConfigError(fmt::format(
      "weights in {}: Hugging Face files are written in f32 or bf16", base::name_of(dtype)));
}

Json gpt2_config(const spec::ModelDims& d, const spec::BlockSpec& block) {
  if (block.kv_heads != block.heads || block.heads * block.head_dim != d.hidden) {
    throw base::ConfigError(fmt::format(
        "model '{}': no Hugging Face gpt2 has kv_heads = {}, heads = {}, head_dim = {} with "
        "hidden = {}; kv_heads must equal heads and heads * head_dim must equal hidden",
        d.name, block.kv_heads, block.heads, block.head_dim, d.hidden));
  }
  return {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"vocab_size", d.vocab},
      {"n_positions", d.max_seq},
      {"n_ctx", d.max_seq},
      {"n_embd", d.hidden},
      {"n_layer", d.layers},
      {"n_head", d.heads},
      {"n_inner", d.ffn},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", decimal(d.norm_eps)},
      {"initializer_range", decimal(d.init_std)},
      {"scale_attn_weights", true},
      {"attn_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"tie_word_embeddings", true},
  };
}

Json llama_config(const spec::ModelDims& d, const spec::BlockSpec& block) {
  if (d.qk_norm && d.norm_eps != d.qk_norm_eps) {
    throw base::ConfigError(fmt::format(
        "model '{}': qk_norm_eps = {} must equal norm_eps = {}: a config.json has one eps", d.name,
        d.qk_norm_eps, d.norm_eps));
  }
  const LlamaType& type = *llama_type(hf_type_of(d));
  Json scaling;
  Json parameters = {{"rope_theta", d.rope.theta}, {"rope_type", "default"}};
  if (d.rope.scaling) {
    scaling = {
        {"factor", d.rope.scaling->factor},
        {"high_freq_factor", d.rope.scaling->high_freq_factor},
        {"low_freq_factor", d.rope.scaling->low_freq_factor},
        {"original_max_position_embeddings", d.rope.scaling->original_max_position},
        {"rope_type", "llama3"},
    };
    parameters.update(scaling);
  }
  Json json = {
      {"architectures", {std::string(type.architecture) + "ForCausalLM"}},
      {"model_type", std::string(type.name)},
      {"vocab_size", d.vocab},
      {"hidden_size", d.hidden},
      {"intermediate_size", d.ffn},
      {"num_hidden_layers", d.layers},
      {"num_attention_heads", d.heads},
      {"num_key_value_heads", block.kv_heads},
      {"head_dim", block.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", d.max_seq},
      {"initializer_range", decimal(d.init_std)},
      {"rms_norm_eps", decimal(d.norm_eps)},
      {"rope_theta", d.rope.theta},
      {"rope_scaling", scaling},
      {"rope_parameters", parameters},
      {"attention_dropout", 0.0},
      {"tie_word_embeddings", d.tied_head},
  };
  if (!d.qkv_bias) json["attention_bias"] = false;
  if (type.name == "llama") {
    json["mlp_bias"] = false;
  } else if (type.name.starts_with("qwen")) {
    json["use_sliding_window"] = false;
    json["sliding_window"] = nullptr;
  }
  if (type.has_experts) write_experts(d, type.name, json);
  return json;
}

}  // namespace

spec::ModelDims dims_from_hf(const Json& json, const std::string& name) {
  if (!json.is_object()) throw base::ConfigError("Hugging Face config: expected an object");
  std::vector<std::string> problems;
  HfReader in(json, "", problems);
  spec::ModelDims dims{.name = name};
  const std::string type = in.text("model_type");
  dims.vocab = in.size("vocab_size");
  dims.init_std = static_cast<float>(in.number("initializer_range", 0.02, 1));
  in.must_be_absent("quantization_config", "weights must be plain f32, f16 or bf16");
  if (type == "gpt2") {
    read_gpt2(in, dims);
  } else if (const LlamaType* llama = llama_type(type)) {
    read_llama(in, json, *llama, dims, problems);
  } else if (type.starts_with("deepseek_v")) {
    problems = {fmt::format(
        "model_type: \"{}\" is not supported yet: its attention (MLA) is missing; supported "
        "mixtures of experts: mixtral, qwen3_moe, olmoe",
        type)};
  } else {
    // The other keys of an unknown type are not read.
    problems = {
        fmt::format("model_type: {} is not supported; supported: gpt2, llama, mistral, qwen2, "
                    "qwen3, mixtral, qwen3_moe, olmoe",
                    in.find("model_type") ? HfReader::shown(json["model_type"]) : "(none)")};
  }
  if (!problems.empty()) {
    throw base::ConfigError(fmt::format("Hugging Face config: {}\n  {}",
                                        base::count_text(std::ssize(problems), "problem"),
                                        fmt::join(problems, "\n  ")));
  }
  (void)spec::make_model(dims);  // throws for sizes that do not fit together
  return dims;
}

Json hf_config_of(const spec::ModelDims& dims, base::DType dtype) {
  const spec::ModelSpec model = spec::make_model(dims);
  const auto& block = spec::typical_block(model);
  Json json =
      dims.family == spec::Family::gpt2 ? gpt2_config(dims, block) : llama_config(dims, block);
  json["use_cache"] = true;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = hf_dtype(dtype);
  json["dtype"] = hf_dtype(dtype);
  return json;
}

}  // namespace trireme::config
