// SPDX-License-Identifier: Apache-2.0
#include "plan/import/megatron_model.h"

#include <fmt/format.h>

#include <array>
#include <regex>
#include <utility>

#include "base/error.h"

namespace trireme::plan {
namespace {

using Notes = std::vector<std::string>;

// Returns Megatron's default width of the feed-forward.
int64_t default_ffn(int64_t hidden, bool gated) {
  constexpr int64_t grain = 64;
  return gated ? 8 * hidden / 3 / grain * grain : 4 * hidden;
}

// Returns the size of the vocabulary with padding.
int64_t padded_vocab(MegatronFlags& flags, Notes& assumed) {
  const auto padded = flags.whole("--padded-vocab-size");
  auto vocab = flags.whole("--vocab-size");
  const std::string tokenizer = flags.text("--tokenizer-type");
  const int64_t grain = flags.whole("--make-vocab-size-divisible-by").value_or(128) *
                        flags.degree("--tensor-model-parallel-size");
  if (padded) return *padded;
  if (!vocab) {
    constexpr std::array<std::pair<std::string_view, int64_t>, 4> known = {
        {{"", 50257},
         {"GPT2BPETokenizer", 50257},
         {"Llama2Tokenizer", 32000},
         {"Llama3Tokenizer", 128256}}};
    for (const auto& [name, size] : known) {
      if (tokenizer == name) vocab = size;
    }
    if (!vocab) {
      flags.problem("--vocab-size", fmt::format("required with --tokenizer-type {}, whose size is "
                                                "unknown",
                                                tokenizer));
      return 2;
    }
    assumed.push_back(fmt::format("a vocabulary of {}, that of {}", *vocab,
                                  tokenizer.empty() ? "GPT2BPETokenizer" : tokenizer));
  }
  const int64_t rounded = (*vocab + grain - 1) / grain * grain;
  if (rounded != *vocab) {
    assumed.push_back(fmt::format("the vocabulary of {} padded to {}", *vocab, rounded));
  }
  return rounded;
}

// Returns the number of leading layers without experts, 3 for "([0]*3+[1]*58)"; negative for
// patterns of another form.
int64_t leading_dense(const std::string& pattern, int64_t layers) {
  if (pattern.empty() || pattern == "1") return 0;
  static const std::regex form(R"(\(?\[0\](?:\*(\d{1,6}))?\+\[1\](?:\*(\d{1,6}))?\)?)");
  static const std::regex all(R"(\(?\[1\]\*(\d{1,6})\)?)");
  std::smatch match;
  const auto count = [&match](size_t i) { return match[i].matched ? std::stoll(match[i]) : 1; };
  if (std::regex_match(pattern, match, all)) return count(1) == layers ? 0 : -1;
  if (!std::regex_match(pattern, match, form) || count(1) + count(2) != layers) return -1;
  return count(1);
}

// Sets the experts, if the flags have some. Their router chooses as Megatron's does by default; its
// kind has no effect on time and memory.
void read_experts(MegatronFlags& flags, bool is_gated, spec::ModelDims& dims) {
  const auto count = flags.whole("--num-experts");
  spec::MoeSpec moe;
  moe.router.experts = count.value_or(0);
  moe.router.chosen = flags.whole("--moe-router-topk").value_or(2);
  moe.router.renormalizes = true;
  moe.ffn = flags.whole("--moe-ffn-hidden-size").value_or(dims.ffn);
  moe.shared_ffn = flags.whole("--moe-shared-expert-intermediate-size").value_or(0);
  const std::string pattern = flags.text("--moe-layer-freq");
  const auto groups = flags.whole("--moe-router-num-groups");
  const auto chosen_groups = flags.whole("--moe-router-group-topk");
  if (!count) return;
  if (groups && chosen_groups) {
    moe.router.groups = *groups;
    moe.router.chosen_groups = *chosen_groups;
  }
  if (!is_gated) {
    flags.problem("--num-experts", "only experts with a gate are modelled; add --swiglu");
  }
  const int64_t layers = dims.layers, dense = leading_dense(pattern, layers);
  if (dense < 0 || dense >= layers) {
    flags.problem("--moe-layer-freq",
                  fmt::format("{} is not modelled: only the first of the {} layers may have no "
                              "experts, for example ([0]*3+[1]*{})",
                              pattern, layers, layers - 3));
  }
  if (moe.router.chosen > moe.router.experts) {
    flags.problem("--moe-router-topk", fmt::format("{} is above --num-experts {}",
                                                   moe.router.chosen, moe.router.experts));
  }
  dims.moe = moe;
  dims.dense_layers = static_cast<int>(dense);
}

enum class Positions { learned, rotary, none };

Positions read_positions(MegatronFlags& flags) {
  const std::string type = flags.text("--position-embedding-type",
                                      {"learned_absolute", "rope", "yarn", "mrope", "none"});
  const bool is_rotary = flags.is_on("--use-rotary-position-embeddings");
  const bool is_off = flags.is_on("--no-position-embedding");
  if (type == "none") return Positions::none;
  if (is_rotary || (!type.empty() && type != "learned_absolute")) return Positions::rotary;
  return is_off ? Positions::none : Positions::learned;
}

void reject_other_models(MegatronFlags& flags) {
  constexpr std::array<std::string_view, 12> others = {"--multi-latent-attention",
                                                       "--heterogeneous-layers-config-path",
                                                       "--heterogeneous-layers-config-encoded-json",
                                                       "--is-hybrid-model",
                                                       "--hybrid-override-pattern",
                                                       "--hybrid-attention-ratio",
                                                       "--window-size",
                                                       "--encoder-num-layers",
                                                       "--decoder-num-layers",
                                                       "--retro-add-retriever",
                                                       "--experimental-attention-variant",
                                                       "--linear-attention-type"};
  for (const std::string_view name : others) {
    if (flags.was_given(name)) {
      flags.problem(name, "not modelled; expected a decoder of equal layers with full attention");
    }
  }
}

spec::RopeSpec read_rope(MegatronFlags& flags) {
  spec::RopeSpec rope{.theta = flags.number("--rotary-base").value_or(10000)};
  const auto factor = flags.number("--rope-scaling-factor");
  if (flags.is_on("--use-rope-scaling")) {
    rope.scaling = spec::RopeScaling{.factor = factor.value_or(8)};
  }
  return rope;
}

// The choices that make a family of models.
struct LayerKinds {
  bool is_gated = false, is_rms = false, has_bias = true;
  Positions positions = Positions::learned;
};

// Changes a model of one family to a mix that is none of Trireme's families.
void set_layer_kinds(const LayerKinds& kinds, int64_t max_seq, spec::ModelSpec& model) {
  const auto norm = kinds.is_rms ? spec::NormKind::rms : spec::NormKind::layer;
  for (spec::LayerSpec& layer : model.layers) {
    if (auto* block = std::get_if<spec::BlockSpec>(&layer)) {
      block->norm = norm;
      block->activation = kinds.is_gated ? spec::Activation::swiglu : spec::Activation::gelu;
      block->linear_bias = kinds.has_bias;
      if (kinds.positions != Positions::rotary) block->rope.reset();
    } else if (auto* head = std::get_if<spec::HeadSpec>(&layer)) {
      head->norm = norm;
    } else if (kinds.positions == Positions::learned) {
      std::get<spec::EmbeddingSpec>(layer).positions = max_seq;
    }
  }
}

}  // namespace

void read_megatron_model(MegatronFlags& flags, Described& described) {
  Notes& assumed = described.assumed;
  reject_other_models(flags);
  spec::ModelDims dims;
  dims.name = "megatron";
  dims.layers = static_cast<int>(flags.required("--num-layers", 100'000));
  dims.hidden = flags.required("--hidden-size");
  dims.heads = flags.required("--num-attention-heads");
  const int64_t seq_len = flags.required("--seq-length");
  const bool gated = flags.is_on("--swiglu");
  if (flags.is_on("--squared-relu")) assumed.emplace_back("--squared-relu at the cost of GELU");
  const auto ffn = flags.whole("--ffn-hidden-size");
  dims.ffn = ffn.value_or(default_ffn(dims.hidden, gated));
  if (!ffn && flags.was_given("--hidden-size")) {
    assumed.push_back(fmt::format("a feed-forward of {}, Megatron's default", dims.ffn));
  }
  dims.head_dim = flags.whole("--kv-channels").value_or(0);
  const bool is_grouped = flags.is_on("--group-query-attention");
  const auto groups = flags.whole("--num-query-groups");
  if (is_grouped) dims.kv_heads = groups.value_or(1);
  if (groups && !is_grouped && *groups > 1) {
    flags.problem("--num-query-groups", "has no effect without --group-query-attention");
  }
  dims.vocab = padded_vocab(flags, assumed);
  dims.max_seq = flags.whole("--max-position-embeddings").value_or(seq_len);
  if (seq_len > dims.max_seq) {
    flags.problem("--seq-length",
                  fmt::format("{} is above --max-position-embeddings {}", seq_len, dims.max_seq));
  }
  dims.tied_head = !flags.is_on("--untie-embeddings-and-output-weights");
  dims.norm_eps = static_cast<float>(flags.number("--norm-epsilon").value_or(1e-5));
  const bool is_rms = flags.text("--normalization", {"LayerNorm", "RMSNorm"}) == "RMSNorm";
  const Positions positions = read_positions(flags);
  const bool has_bias = !flags.is_on("--disable-bias-linear");
  dims.qkv_bias = flags.is_on("--add-qkv-bias") && !has_bias;
  dims.qk_norm = flags.is_on("--qk-layernorm");
  dims.rope = read_rope(flags);
  read_experts(flags, gated, dims);

  const bool is_llama = gated && is_rms && !has_bias && positions == Positions::rotary;
  const bool is_gpt2 = !gated && !is_rms && has_bias && positions == Positions::learned &&
                       dims.tied_head && !dims.qk_norm;
  if (is_gpt2) dims.family = spec::Family::gpt2;
  if (flags.has_problems()) return;  // missing sizes are 1
  try {
    described.job.model = spec::make_model(dims);
  } catch (const base::ConfigError& error) {
    flags.problem("--hidden-size and other sizes", error.what());
    return;
  }
  if (!is_llama && !is_gpt2) {
    set_layer_kinds({gated, is_rms, has_bias, positions}, dims.max_seq, described.job.model);
  }
  if (is_llama || is_gpt2) described.dims = dims;
  described.job.seq_len = seq_len;
}

}  // namespace trireme::plan
