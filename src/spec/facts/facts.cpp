// SPDX-License-Identifier: Apache-2.0
#include "spec/facts/facts.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/error.h"
#include "spec/experts/router_state.h"
#include "spec/facts/facts_internal.h"
#include "spec/state/float8_state.h"
#include "spec/state/muon.h"

namespace trireme::spec {
namespace {

template <typename... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Match(Cases...) -> Match<Cases...>;  // clang before 17 does not deduce it

const LayerSpec& layer_of(const ModelSpec& model, int layer) {
  TRIREME_CHECK(layer >= 0 && layer < static_cast<int>(model.layers.size()), "layer {} of {}",
                layer, model.layers.size());
  return model.layers[static_cast<size_t>(layer)];
}

void check_supported(const LocalShape& shape) {
  TRIREME_CHECK(
      shape.tokens * shape.mesh[Axis::cp] == shape.sequences * shape.seq_len && shape.tokens > 0,
      "{} tokens of {} sequences of {} on one of {} ranks", shape.tokens, shape.sequences,
      shape.seq_len, shape.mesh[Axis::cp]);
  TRIREME_CHECK(shape.ulysses >= 1 && shape.mesh[Axis::cp] % shape.ulysses == 0,
                "cp = {}, ulysses = {}", shape.mesh[Axis::cp], shape.ulysses);
  TRIREME_CHECK(shape.head_chunk_rows > 0, "head_chunk_rows {}", shape.head_chunk_rows);
  if (shape.sequence_parallel && shape.tokens % shape.mesh[Axis::tp] != 0) {
    throw base::ConfigError(fmt::format(
        "{} tokens in a micro-batch do not divide by tp = {}, which sequence parallelism needs",
        shape.tokens, shape.mesh[Axis::tp]));
  }
}

constexpr std::array<std::string_view, 3> recompute_names = {"none", "selective", "full"};

}  // namespace

std::string_view name_of(Recompute recompute) {
  return recompute_names[static_cast<size_t>(recompute)];
}

std::optional<Recompute> recompute_from_name(std::string_view name) {
  for (size_t i = 0; i < recompute_names.size(); ++i) {
    if (recompute_names[i] == name) return static_cast<Recompute>(i);
  }
  return {};
}

bool is_kept(const Slot& slot, int index, Recompute recompute) {
  if (slot.life == Life::b_to_w || slot.is_transient) return false;
  switch (recompute) {
    case Recompute::none:
      return true;
    case Recompute::selective:
      return !slot.recomputable;
    case Recompute::full:
      return index == slot_x || slot.is_decision;
  }
  return true;
}

Fate fate_of(const Slot& slot, int index, Recompute recompute) {
  if (slot.life == Life::b_to_w || is_kept(slot, index, recompute)) return Fate::kept;
  return slot.recomputed_in_b && recompute == Recompute::selective ? Fate::recomputed_in_b
                                                                   : Fate::recomputed;
}

bool is_partial_along_tp(const Param& param, bool sequence_parallel) {
  return param.is_by_heads || (param.is_by_rows && sequence_parallel);
}

int64_t bytes_of(const ScratchSet& set) {
  int64_t bytes = 0;
  for (const base::TensorSpec& tensor : set.tensors) bytes += base::bytes_of(tensor);
  return bytes;
}

std::string name_of_layer(const ModelSpec& model, int layer) {
  return std::visit(Match{[](const EmbeddingSpec&) { return std::string("embedding"); },
                          [&](const BlockSpec&) { return fmt::format("blocks.{}", layer - 1); },
                          [](const HeadSpec&) { return std::string("head"); }},
                    layer_of(model, layer));
}

std::vector<Param> params_of(const ModelSpec& model, int layer) {
  return std::visit(
      Match{[&](const EmbeddingSpec& s) { return internal::embedding_params(s, model); },
            [&](const BlockSpec& s) { return internal::block_params(s, model, layer); },
            [&](const HeadSpec& s) { return internal::head_params(s, model); }},
      layer_of(model, layer));
}

std::vector<Param> params_of(const ModelSpec& model, int layer, const Recipe& recipe) {
  std::vector<Param> params = params_of(model, layer);
  const bool is_block = std::holds_alternative<BlockSpec>(layer_of(model, layer));
  if (!recipe.fp8 || !is_block) return params;
  for (Param& param : params) {
    param.is_matrix = !param.matrices.empty() || param.view == ParamView::expert;
  }
  // Shared experts stay in bf16.
  for (const BlockParam p : {BlockParam::shared_up_weight, BlockParam::shared_down_weight}) {
    params[static_cast<size_t>(p)].is_matrix = false;
  }
  return params;
}

std::vector<StateTensor> state_of(const ModelSpec& model, int layer,
                                  const OptimizerTypes& optimizer, const Recipe& recipe) {
  std::vector<StateTensor> all = optimizer_state(optimizer, recipe);
  if (const auto* block = std::get_if<BlockSpec>(&layer_of(model, layer))) {
    if (block->moe) {
      for (StateTensor& tensor : router_state(*block->moe)) all.push_back(std::move(tensor));
    }
    all.insert(all.end(), model.block_state.begin(), model.block_state.end());
    for (StateTensor& tensor : float8_state(recipe)) all.push_back(std::move(tensor));
  }
  return all;
}

Facts facts(const ModelSpec& model, int layer, const LocalShape& shape, const Recipe& recipe,
            Recompute recompute, const Backend& backend, const OptimizerTypes& optimizer) {
  check_supported(shape);
  const Recipe own = layer_recipe(recipe, model, layer);
  const internal::FactsInput in{model, layer, shape, own, recompute, backend};
  Facts all =
      std::visit(Match{[&](const EmbeddingSpec& s) { return internal::embedding_facts(s, in); },
                       [&](const BlockSpec& s) { return internal::block_facts(s, in); },
                       [&](const HeadSpec& s) { return internal::head_facts(s, in); }},
                 layer_of(model, layer));
  all.params = params_of(model, layer, recipe);
  all.state = state_of(model, layer, optimizer, recipe);
  if (optimizer.kind == OptimizerKind::muon) {
    const BucketLayout bucket = bucket_layout(all.params, shape.mesh);
    all.scratch.push_back(muon_scratch(muon_matrices(all.params, bucket, shape.mesh), bucket));
  }
  return all;
}

BlockSpec local_block(const BlockSpec& block, const Sizes& sizes) {
  const int tp = sizes[Axis::tp];
  BlockSpec local = block;
  for (int64_t* part : {&local.heads, &local.kv_heads, &local.ffn}) {
    if (*part % tp != 0) {
      throw base::ConfigError(
          fmt::format("heads = {}, kv_heads = {}, ffn = {}: each must divide by tp = {}",
                      block.heads, block.kv_heads, block.ffn, tp));
    }
    *part /= tp;
  }
  if (local.moe) {
    int64_t& shared = local.moe->shared_ffn;
    int64_t& ffn = local.moe->ffn;
    const int etp = sizes[Axis::etp];
    if (shared % tp != 0 || ffn % etp != 0) {
      throw base::ConfigError(
          fmt::format("shared_ffn = {}, expert_ffn = {}: must divide by tp = {} and etp = {}",
                      shared, ffn, tp, etp));
    }
    shared /= tp;
    ffn /= etp;
  }
  return local;
}

bool is_bias_made_in_b(const BlockSpec& block, const LocalShape& shape, BlockParam bias) {
  switch (bias) {
    case BlockParam::out_bias:
    case BlockParam::down_bias:  // in the norms, unless they have only a part of the rows
      return block.linear_bias && !shape.sequence_parallel;
    case BlockParam::up_bias:  // in the product whose epilogue is GELU's gradient
      return block.linear_bias && block.activation == Activation::gelu;
    default:
      return false;
  }
}

Range local_vocab(int64_t vocab, const Sizes& sizes, const Coord& coord) {
  return local_range(internal::vocab_cut(vocab), vocab, sizes, coord);
}

int64_t padded_vocab(int64_t vocab, const Sizes& sizes) {
  return local_shape({.name = "vocabulary", .shape = {vocab}, .cuts = {internal::vocab_cut(vocab)}},
                     sizes)
      .front();
}

BlockSpec attention_block(const BlockSpec& local, const LocalShape& shape) {
  const int64_t ranks = shape.ulysses;
  const bool divides =
      local.heads % ranks == 0 && (local.kv_heads % ranks == 0 || ranks % local.kv_heads == 0);
  if (!divides) {
    throw base::ConfigError(
        fmt::format("heads = {}, kv_heads = {}: heads must divide by ulysses = {}, and one of "
                    "kv_heads and ulysses by the other",
                    local.heads, local.kv_heads, ranks));
  }
  BlockSpec block = local;
  block.heads /= ranks;
  block.kv_heads = std::max<int64_t>(local.kv_heads / ranks, 1);
  return block;
}

AttentionShape attention_shape(const BlockSpec& block, const LocalShape& shape, base::DType dtype) {
  return {.dtype = dtype,
          .sequences = shape.sequences,
          .seq_len = shape.seq_len,
          .heads = block.heads,
          .kv_heads = block.kv_heads,
          .head_dim = block.head_dim,
          .has_documents = shape.has_documents};
}

base::TensorSpec logits_spec(const Backend& backend, int64_t rows, int64_t vocab,
                             base::DType dtype) {
  return {{rows, base::round_up(vocab, backend.row_grain)}, dtype};
}

base::TensorSpec rope_table_spec(const ModelSpec& model, int64_t seq_len) {
  for (const LayerSpec& layer : model.layers) {
    const auto* block = std::get_if<BlockSpec>(&layer);
    if (block != nullptr && block->rope) return {{seq_len, block->head_dim}, base::DType::f32};
  }
  return {};
}

namespace internal {

Param make_param(std::string name, std::vector<int64_t> shape, Init init, float init_std) {
  Param param;
  param.decays = shape.size() >= 2;
  param.init = init;
  param.init_std = init_std;
  param.shard = {.name = std::move(name), .shape = std::move(shape), .cuts = {}};
  return param;
}

Cut vocab_cut(int64_t vocab) { return {Axis::tp, 0, {vocab}, vocab_grain}; }

StreamComm::StreamComm(const FactsInput& in, int64_t stream_width)
    : ranks(in.shape.mesh[Axis::tp]),
      parts_rows(in.shape.sequence_parallel),
      tokens(in.shape.tokens),
      width(stream_width),
      dtype(in.recipe.storage) {}

void StreamComm::whole(std::vector<CommCost>& costs, int64_t rows) const {
  if (ranks == 1 || !parts_rows) return;
  costs.push_back({CommKind::all_gather, Axis::tp, rows * width, dtype});
}

void StreamComm::sum(std::vector<CommCost>& costs, int64_t rows) const {
  if (ranks == 1) return;
  const CommKind kind = parts_rows ? CommKind::reduce_scatter : CommKind::all_reduce;
  costs.push_back({kind, Axis::tp, rows * width, dtype});
}

int64_t moved(const base::TensorSpec& spec) {
  return spec.shape.elements() * base::size_of(spec.dtype);
}

int64_t moved(std::initializer_list<base::TensorSpec> specs) {
  int64_t bytes = 0;
  for (const base::TensorSpec& spec : specs) bytes += moved(spec);
  return bytes;
}

OpCost streaming(OpKind kind, const base::TensorSpec& main,
                 std::initializer_list<base::TensorSpec> all) {
  return {.kind = kind,
          .m = main.shape[0],
          .n = main.shape.row_elements(),
          .dtype = main.dtype,
          .bytes = moved(all)};
}

OpCost gemm_cost(const GemmShape& g, std::initializer_list<base::TensorSpec> extra) {
  const double flops =
      2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  const int64_t operands = (g.m * g.k + g.k * g.n) * base::size_of(g.operands);
  const int64_t result = g.m * g.n * base::size_of(g.result) * (g.accumulates ? 2 : 1);
  return {OpKind::gemm, g.m,        g.n,   g.k,
          g.layout,     g.operands, flops, operands + result + moved(extra)};
}

}  // namespace internal
}  // namespace trireme::spec
