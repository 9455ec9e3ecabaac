// SPDX-License-Identifier: Apache-2.0
// ModelSpec: a language model as a list of layer descriptions, without memory, device or
// parallelism.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "spec/experts/moe_spec.h"
#include "spec/facts/op_shapes.h"
#include "spec/state/state.h"

namespace trireme::spec {

// Llama-3's scaling of rotary frequencies: wavelengths above original_max_position /
// low_freq_factor are multiplied by `factor`, those below original_max_position / high_freq_factor
// are kept, those between are blended.
struct RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct RopeSpec {
  double theta = 10000;
  std::optional<RopeScaling> scaling;
  bool operator==(const RopeSpec&) const = default;
};

struct EmbeddingSpec {
  int64_t vocab = 0;
  int64_t width = 0;
  int64_t positions = 0;  // rows of a learned position table; 0: none
  bool tied = false;      // the head uses the same table
  bool operator==(const EmbeddingSpec&) const = default;
};

enum class Activation : uint8_t { gelu, swiglu };

// norm, attention, residual; norm, feed-forward, residual.
struct BlockSpec {
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  NormKind norm = NormKind::rms;  // `layer` has a bias
  float norm_eps = 1e-5F;
  Activation activation = Activation::swiglu;
  bool linear_bias = false;  // on all four projections
  bool qkv_bias = false;     // on q, k and v
  bool qk_norm = false;      // RMS norm of every q and k head
  float qk_norm_eps = 1e-6F;
  bool qk_norm_whole = false;  // with qk_norm: over all q heads together, and all k heads
  // After the norm q, k and v are limited to [-clip_qkv, clip_qkv]; 0: no limit. Not with a norm of
  // every head.
  float clip_qkv = 0;
  std::optional<RopeSpec> rope;
  std::optional<MoeSpec> moe;  // takes the place of the feed-forward of width `ffn`
  bool operator==(const BlockSpec&) const = default;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t up_width() const { return activation == Activation::swiglu ? 2 * ffn : ffn; }
  bool has_qkv_bias() const { return linear_bias || qkv_bias; }
  // Does the backward read q, k and v as they were projected? Then those that attention reads are
  // separate: q and k, with clip_qkv also v.
  bool keeps_projection() const { return qk_norm || clip_qkv > 0; }
  int64_t rotated_width() const { return (heads + (clip_qkv > 0 ? 2 : 1) * kv_heads) * head_dim; }
};

// Final norm, projection to the vocabulary, cross-entropy.
struct HeadSpec {
  int64_t vocab = 0;
  int64_t width = 0;
  NormKind norm = NormKind::rms;
  float norm_eps = 1e-5F;
  bool tied = false;
  bool operator==(const HeadSpec&) const = default;
};

using LayerSpec = std::variant<EmbeddingSpec, BlockSpec, HeadSpec>;

struct ModelSpec {
  std::string name;
  int64_t max_seq = 0;
  float init_std = 0.02F;
  std::vector<LayerSpec> layers;  // embedding, blocks, head
  // Own tensors of every block besides the state of its parameters. No family has any; shard.name
  // is not used.
  std::vector<StateTensor> block_state = {};
  bool operator==(const ModelSpec&) const = default;

  int blocks() const { return static_cast<int>(layers.size()) - 2; }
};

// Returns the last block. make_model() gives every block the same attention, and all blocks with
// experts the same experts, so it stands for all but the first blocks, which may be dense.
const BlockSpec& typical_block(const ModelSpec&);
// Returns the mixture of experts that blocks of the model have, or null.
const MoeSpec* moe_of(const ModelSpec&);

enum class Family : uint8_t { gpt2, llama };
std::string_view name_of(Family);

// The sizes of a model, as in configuration files.
struct ModelDims {
  std::string name = "model";
  Family family = Family::llama;
  int layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t max_seq = 0;
  float norm_eps = 1e-5F;
  float qk_norm_eps = 1e-6F;
  bool tied_head = true;       // gpt2: must be true
  bool qkv_bias = false;       // llama only; gpt2 has biases everywhere
  bool qk_norm = false;        // llama only
  bool qk_norm_whole = false;  // llama only, with qk_norm
  float clip_qkv = 0;          // llama only
  RopeSpec rope;               // llama only
  float init_std = 0.02F;
  std::optional<MoeSpec> moe;  // llama only
  // With moe: the first blocks, which have an ordinary feed-forward of width `ffn`, and after them
  // the distance of blocks with experts: every expert_step-th block counted from the first one
  // has them.
  int dense_layers = 0;
  int expert_step = 1;
};

// Does this block (counted from 0) have experts, and how many blocks do? Accepts any sizes.
bool has_experts(const ModelDims&, int block);
int expert_blocks(const ModelDims&);

// Limits far above any model or job, and far below int64: everything computed from parameters and
// activations (bytes, copies of state, operands of operations) fits its type.
constexpr int64_t max_parameters = int64_t{1} << 50;
constexpr int64_t max_step_activations = int64_t{1} << 56;

// Returns the number of parameters, up to small vectors (biases, norms). Accepts any sizes.
double estimated_parameters(const ModelDims&);
// Returns the elements of the activations of `tokens` tokens in all layers, each width of a layer
// counted once. A step has at most max_step_activations of them.
double activation_elements(const ModelSpec&, double tokens);

// Throws ConfigError that lists every violated rule at once, also for more than max_parameters.
ModelSpec make_model(const ModelDims&);

// Returns the number of parameters, a tied table counted once.
int64_t parameter_count(const ModelSpec&);
// Returns the number of parameters that one token uses: of experts those that are chosen.
int64_t active_parameter_count(const ModelSpec&);
// Returns the size of the head's vocabulary.
int64_t vocab_of(const ModelSpec&);

}  // namespace trireme::spec
