// SPDX-License-Identifier: Apache-2.0
#include "spec/layout/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/layout/rules_internal.h"

namespace trireme::spec {
namespace {

std::vector<Rule> make_book() {
  std::vector<Rule> book;
  for (const auto chapter :
       {degree_rules, size_rules, tensor_rules, context_rules, expert_rules, data_rules,
        format_rules, precision_rules, custom_schedule_rules, pipeline_rules}) {
    for (Rule& rule : chapter()) book.push_back(std::move(rule));
  }
  return book;
}

const std::vector<Rule>& book() {
  static const std::vector<Rule> all = make_book();
  return all;
}

// Calls take(rule) for every broken rule, until it returns false.
template <typename Take>
void for_each_broken(const RuleCase& c, Whose whose, Take take) {
  unsigned known = Known::all;
  for (const Rule& rule : book()) {
    if (rule.whose == Whose::engine && whose == Whose::any) continue;
    if ((rule.needs & known) != rule.needs || rule.holds(c)) continue;
    known &= ~rule.spoils;
    if (!take(rule)) return;
  }
}

}  // namespace

const LayoutNames& layout_names() {
  static const LayoutNames names = {"tp",
                                    "cp",
                                    "context_kind",
                                    "context_slices",
                                    "ulysses",
                                    "pp",
                                    "dp_replicate",
                                    "dp_shard",
                                    "ep",
                                    "etp",
                                    "row_budget",
                                    "overflow",
                                    "expert_capacity",
                                    "zero_stage",
                                    "sequence_parallel",
                                    "placement",
                                    "schedule",
                                    "chunks",
                                    "custom_schedule",
                                    "first_layers",
                                    "send_buffers",
                                    "micro_batch",
                                    "accumulation",
                                    "global_batch",
                                    "seq_len",
                                    "logical_dp",
                                    "reduce",
                                    "recompute",
                                    "precision",
                                    "bf16_first",
                                    "bf16_last",
                                    "bf16_blocks",
                                    "optimizer",
                                    "grad_dtype",
                                    "master_dtype",
                                    "reduce_dtype",
                                    "reshard",
                                    "prefetch",
                                    "head_chunk_rows",
                                    "ffn_rows",
                                    "model"};
  return names;
}

namespace {

void add_width(const char* name, int64_t size, ProductWidth::Cut cut, ModelSizes& sizes) {
  const ProductWidth width{name, size, cut};
  if (size > 0 && std::ranges::find(sizes.widths, width) == sizes.widths.end()) {
    sizes.widths.push_back(width);
  }
}

void take_experts(const MoeSpec& moe, ModelSizes& sizes) {
  sizes.experts = moe.router.experts;
  sizes.expert_ffn = moe.ffn;
  add_width("ffn of experts", moe.ffn, ProductWidth::Cut::etp, sizes);
}

}  // namespace

ModelSizes sizes_of(const ModelSpec& model) {
  ModelSizes sizes;
  sizes.name = model.name;
  sizes.layers = static_cast<int64_t>(model.layers.size());
  sizes.max_seq = model.max_seq;
  sizes.activations_per_token = activation_elements(model, 1);
  const auto add = [&sizes](const char* name, int64_t size) {
    const std::pair<std::string, int64_t> cut(name, size);
    if (std::ranges::find(sizes.tp_cuts, cut) == sizes.tp_cuts.end()) sizes.tp_cuts.push_back(cut);
  };
  for (const LayerSpec& layer : model.layers) {
    if (const auto* block = std::get_if<BlockSpec>(&layer)) {
      add("heads", block->heads);
      using enum ProductWidth::Cut;
      add_width("hidden", block->width, none, sizes);
      add_width("width of qkv", block->qkv_width(), tp, sizes);
      add_width("heads x head_dim", block->heads * block->head_dim, tp, sizes);
      if (!block->moe) add_width("ffn", block->ffn, tp, sizes);
      sizes.has_whole_qk_norm = sizes.has_whole_qk_norm || block->qk_norm_whole;
      if (!block->moe) add("ffn", block->ffn);
      if (block->moe && block->moe->shared_ffn > 0) add("shared_ffn", block->moe->shared_ffn);
      if (std::ranges::find(sizes.kv_heads, block->kv_heads) == sizes.kv_heads.end()) {
        sizes.kv_heads.push_back(block->kv_heads);
      }
    } else if (const auto* head = std::get_if<HeadSpec>(&layer)) {
      sizes.vocab = head->vocab;
      sizes.is_tied = head->tied;
    }
  }
  if (const MoeSpec* moe = moe_of(model)) take_experts(*moe, sizes);
  return sizes;
}

ModelSizes sizes_of(const ModelDims& dims) {
  ModelSizes sizes;
  sizes.name = dims.name;
  if (dims.heads <= 0) return sizes;
  sizes.tp_cuts = {{"heads", dims.heads}};
  sizes.kv_heads = {dims.kv_heads > 0 ? dims.kv_heads : dims.heads};
  using enum ProductWidth::Cut;
  const int64_t head_dim = dims.head_dim > 0 ? dims.head_dim : dims.hidden / dims.heads;
  add_width("hidden", dims.hidden, none, sizes);
  add_width("width of qkv", (dims.heads + 2 * sizes.kv_heads[0]) * head_dim, tp, sizes);
  add_width("heads x head_dim", dims.heads * head_dim, tp, sizes);
  if (!dims.moe || expert_blocks(dims) < dims.layers) add_width("ffn", dims.ffn, tp, sizes);
  if (!dims.moe || expert_blocks(dims) < dims.layers) sizes.tp_cuts.emplace_back("ffn", dims.ffn);
  if (dims.moe) {
    if (dims.moe->shared_ffn > 0) sizes.tp_cuts.emplace_back("shared_ffn", dims.moe->shared_ffn);
    take_experts(*dims.moe, sizes);
  }
  sizes.vocab = dims.vocab;
  sizes.is_tied = dims.tied_head;
  sizes.has_whole_qk_norm = dims.qk_norm_whole;
  sizes.max_seq = dims.max_seq;
  if (dims.layers > 0) sizes.layers = dims.layers + 2;
  return sizes;
}

std::span<const Rule> rule_book() { return book(); }

const Rule* find_rule(std::string_view id) {
  const auto found = std::ranges::find(book(), id, &Rule::id);
  return found == book().end() ? nullptr : &*found;
}

std::string to_text(const Broken& broken) {
  return fmt::format("{} [{}]", broken.text, broken.rule->id);
}

std::vector<Broken> broken_rules(const RuleCase& c, Whose whose) {
  std::vector<Broken> all;
  for_each_broken(c, whose, [&](const Rule& rule) {
    all.push_back({&rule, rule.message(c)});
    return true;
  });
  return all;
}

const Rule* first_broken(const RuleCase& c, Whose whose) {
  const Rule* first = nullptr;
  for_each_broken(c, whose, [&first](const Rule& rule) {
    first = &rule;
    return false;
  });
  return first;
}

std::string joined(const std::vector<std::string>& parts, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? fmt::format(" {} ", last) : ", ";
    text += parts[i];
  }
  return text;
}

std::string nearest_multiples(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  return below < unit ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

}  // namespace trireme::spec
