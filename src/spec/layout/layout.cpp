// SPDX-License-Identifier: Apache-2.0
#include "spec/layout/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

namespace trireme::spec {
namespace {

template <typename Enum>
using EnumNames = std::array<std::string_view, static_cast<size_t>(Enum::count)>;

constexpr EnumNames<ReduceWhen> reduce_names = {"auto", "once", "each"};
constexpr EnumNames<Reshard> reshard_names = {"default", "always", "never"};
constexpr EnumNames<Placement> placement_names = {"dp-inside", "pp-inside"};
constexpr EnumNames<ContextKind> context_kind_names = {"ulysses", "gather", "ring",
                                                       "ulysses_gather", "ulysses_ring"};
constexpr EnumNames<ContextSlices> context_slices_names = {"zigzag", "contiguous", "striped",
                                                           "blocks"};

constexpr EnumNames<Overflow> overflow_names = {"strict", "drop"};

template <typename Enum>
std::optional<Enum> value_named(const EnumNames<Enum>& names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return {};
}

// "cp 8 gather", "cp 8 ulysses 4 x ring 2 contiguous".
std::string context_words(const Layout& l) {
  std::string text = fmt::format("cp {} {}", l.cp, name_of(l.context_kind));
  const bool is_product = has_ulysses(l.context_kind) && l.context_kind != ContextKind::ulysses;
  if (is_product && l.ulysses > 0) {
    text = fmt::format("cp {} ulysses {} x {} {}", l.cp, l.ulysses,
                       has_gather(l.context_kind) ? "gather" : "ring", l.cp / l.ulysses);
  }
  if (l.context_slices == ContextSlices::zigzag) return text;
  return fmt::format("{} {}", text, name_of(l.context_slices));
}

// " with blocks in bf16: first 2, last 0, 3/7"; empty at the defaults.
std::string bf16_words(const Layout& l) {
  const Layout fresh;
  const bool has_other_ends = l.bf16_first != fresh.bf16_first || l.bf16_last != fresh.bf16_last;
  if (!has_other_ends && l.bf16_blocks.empty()) return "";
  std::string text = " with blocks in bf16: ";
  if (has_other_ends) text += fmt::format("first {}, last {}", l.bf16_first, l.bf16_last);
  if (l.bf16_blocks.empty()) return text;
  return text + fmt::format("{}{}", has_other_ends ? ", " : "", fmt::join(l.bf16_blocks, "/"));
}

}  // namespace

std::string_view name_of(ReduceWhen when) { return reduce_names[static_cast<size_t>(when)]; }
std::optional<ReduceWhen> reduce_from_name(std::string_view name) {
  return value_named<ReduceWhen>(reduce_names, name);
}

std::string_view name_of(Reshard when) { return reshard_names[static_cast<size_t>(when)]; }
std::optional<Reshard> reshard_from_name(std::string_view name) {
  return value_named<Reshard>(reshard_names, name);
}

std::string_view name_of(Placement placement) {
  return placement_names[static_cast<size_t>(placement)];
}
std::optional<Placement> placement_from_name(std::string_view name) {
  return value_named<Placement>(placement_names, name);
}

std::string_view name_of(ContextKind kind) { return context_kind_names[static_cast<size_t>(kind)]; }
std::optional<ContextKind> context_kind_from_name(std::string_view name) {
  return value_named<ContextKind>(context_kind_names, name);
}
bool has_ulysses(ContextKind kind) {
  return kind != ContextKind::gather && kind != ContextKind::ring;
}
bool has_gather(ContextKind kind) {
  return kind == ContextKind::gather || kind == ContextKind::ulysses_gather;
}
bool has_ring(ContextKind kind) {
  return kind == ContextKind::ring || kind == ContextKind::ulysses_ring;
}

std::string_view name_of(ContextSlices slices) {
  return context_slices_names[static_cast<size_t>(slices)];
}
std::optional<ContextSlices> context_slices_from_name(std::string_view name) {
  return value_named<ContextSlices>(context_slices_names, name);
}

std::string_view name_of(Overflow overflow) {
  return overflow_names[static_cast<size_t>(overflow)];
}
std::optional<Overflow> overflow_from_name(std::string_view name) {
  return value_named<Overflow>(overflow_names, name);
}

std::optional<ExpertSizes> expert_sizes(const Layout& l) {
  const int64_t inner = int64_t{l.dp_shard} * l.cp * l.tp, experts = int64_t{l.ep} * l.etp;
  if (inner % experts == 0) return ExpertSizes{l.dp_replicate, static_cast<int>(inner / experts)};
  if (experts % inner != 0 || l.dp_replicate % (experts / inner) != 0) return {};
  return ExpertSizes{static_cast<int>(l.dp_replicate / (experts / inner)), 1};
}

Recipe recipe_of(const Layout& l) {
  Recipe recipe = recipe_of(l.precision);
  recipe.grad = l.grad_dtype;
  if (!recipe.fp8) return recipe;
  recipe.first_blocks = l.bf16_first;
  recipe.last_blocks = l.bf16_last;
  recipe.other_blocks = l.bf16_blocks;
  return recipe;
}

int64_t Layout::global_batch() const {
  int64_t sequences = 0;
  if (__builtin_mul_overflow(micro_batch, int64_t{accumulation} * logical_dp, &sequences)) {
    return std::numeric_limits<int64_t>::max();
  }
  return sequences;
}

bool degrees_are_in_range(const Layout& l) {
  double ranks = 1;
  for (const int degree : {l.tp, l.cp, l.pp, l.dp_replicate, l.dp_shard}) {
    if (degree == -1) continue;
    if (degree < 1 || degree > max_priced_degree) return false;
    ranks *= degree;
  }
  for (const int degree : {l.ep, l.etp}) {
    if (degree < 1 || degree > max_priced_degree) return false;
  }
  const double data = static_cast<double>(std::max(l.dp_replicate, 1)) * std::max(l.dp_shard, 1);
  return l.pp <= max_pp && data <= static_cast<double>(max_priced_degree) &&
         ranks <= static_cast<double>(max_ranks);
}

int open_ulysses(const Layout& l, std::span<const int64_t> kv_heads) {
  if (l.cp == 1 || !has_ulysses(l.context_kind)) return 1;
  if (l.context_kind == ContextKind::ulysses) return l.cp;
  if (kv_heads.empty()) return 0;
  const auto divides = [&](int64_t degree) {
    return l.cp % degree == 0 && std::ranges::all_of(kv_heads, [&](int64_t heads) {
             return std::max<int64_t>(1, heads / l.tp) % degree == 0;
           });
  };
  const int64_t most = std::max<int64_t>(1, std::ranges::min(kv_heads) / l.tp);
  for (int64_t degree = std::min<int64_t>(l.cp / 2, most); degree > 1; --degree) {
    if (divides(degree)) return static_cast<int>(degree);
  }
  return divides(l.cp) ? l.cp : 1;
}

void set_data_ranks(Layout& layout, int ranks, int zero_stage) {
  layout.dp_replicate = zero_stage > 0 ? 1 : ranks;
  layout.dp_shard = zero_stage > 0 ? ranks : 1;
  layout.zero_stage = zero_stage;
}

Layout opened(Layout l) {
  const bool needs_each = l.shards_grads() && l.accumulation > 1;
  if (l.reduce == (needs_each ? ReduceWhen::each : ReduceWhen::once)) {
    l.reduce = ReduceWhen::automatic;
  }
  if (!l.shards_params() || l.reshard == (l.pp > 1 ? Reshard::never : Reshard::always)) {
    l.reshard = Reshard::automatic;
  }
  if (l.logical_dp == l.data_ranks()) l.logical_dp = 0;
  // Interleaving allows any number; several stages on one rank must be explicit.
  const bool has_own_number = l.pp > 1 && l.chunks == schedule::named(l.schedule).chunks;
  if (l.has_one_stage() || has_own_number || l.custom_schedule) l.chunks = 0;
  l.accumulation = 0;
  if (l.ulysses == open_ulysses(l, {})) l.ulysses = 0;
  return l;
}

std::string words(const Layout& l) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", part);
  };
  if (l.tp > 1) add(fmt::format("tp {}{}", l.tp, l.sequence_parallel ? " sp" : ""));
  if (l.cp > 1) add(context_words(l));
  if (!l.has_one_stage()) {
    add(l.custom_schedule
            ? fmt::format("pp {} by a custom schedule", l.pp)
            : fmt::format(
                  "pp {} {}{}", l.pp, schedule::name_of(l.schedule),
                  l.schedule == schedule::Kind::interleaved
                      ? fmt::format(" x {}", l.chunks > 0 ? l.chunks : schedule::default_chunks)
                      : ""));
  }
  if (!l.first_layers.empty()) add(fmt::format("stages from {}", fmt::join(l.first_layers, "/")));
  const bool is_hybrid = l.dp_replicate > 1 && (l.dp_shard > 1 || l.zero_stage > 0);
  add(fmt::format("dp {}{}", l.data_ranks(),
                  l.zero_stage > 0 ? fmt::format(" ZeRO-{}", l.zero_stage) : ""));
  if (is_hybrid) text += l.dp_shard > 1 ? fmt::format(" over {}", l.dp_shard) : " over cp";
  if (l.logical_dp > l.data_ranks()) add(fmt::format("{} workers", l.logical_dp));
  if (l.ep > 1) add(fmt::format("ep {}", l.ep));
  if (l.etp > 1) add(fmt::format("etp {}", l.etp));
  const Layout fresh;
  if (l.row_budget != fresh.row_budget) add(fmt::format("row budget {}", l.row_budget));
  if (l.overflow != fresh.overflow) add("rows over it dropped");
  if (l.expert_capacity != 0) add(fmt::format("expert capacity {}", l.expert_capacity));
  add(fmt::format("micro-batch {}", l.micro_batch));
  if (l.recompute != Recompute::none) {
    add(fmt::format("{} recompute", name_of(l.recompute)));
    if (l.recompute_blocks >= 0) text += fmt::format(" in {} blocks", l.recompute_blocks);
  }
  if (l.ffn_rows > 0) add(fmt::format("feed-forward by {} rows", l.ffn_rows));
  add(std::string(name_of(l.precision)));
  if (is_fp8(l.precision)) text += bf16_words(l);
  if (l.optimizer != OptimizerKind::adamw) add(std::string(name_of(l.optimizer)));
  if (l.grad_dtype != base::DType::f32) {
    add(fmt::format("{} gradients", base::name_of(l.grad_dtype)));
  }
  if (l.master_dtype != base::DType::f32) {
    add(fmt::format("{} masters", base::name_of(l.master_dtype)));
  }
  if (l.pp > 1 && l.data_ranks() > 1 && l.placement == Placement::pp_inside) {
    add("stages side by side");
  }
  return text;
}

}  // namespace trireme::spec
