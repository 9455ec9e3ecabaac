// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "spec/layout/rules.h"
#include "spec/layout/rules_internal.h"

namespace trireme::spec {
namespace {

// Replaces the first degree of -1 by the ranks that the other degrees leave.
void settle_degrees(Layout& l, int64_t ranks) {
  int64_t fixed = l.cp;
  int* open = nullptr;
  for (int* degree : {&l.dp_shard, &l.dp_replicate, &l.tp, &l.pp}) {
    if (*degree != -1) {
      fixed *= *degree;
    } else if (open == nullptr) {
      open = degree;
    } else {
      *degree = 1;
    }
  }
  if (open == nullptr) return;
  *open = ranks == 0 || fixed <= 0 ? 1 : static_cast<int>(std::max<int64_t>(1, ranks / fixed));
}

void settle_data(Layout& l, const Workload& work) {
  if (l.dp_shard == 1 && l.cp == 1) {
    l.zero_stage = 0;
  } else if (l.zero_stage == -1) {
    l.zero_stage = 3;
  }
  if (l.logical_dp == 0) l.logical_dp = l.data_ranks();
  if (l.accumulation == 0) {
    int64_t unit = 0;
    const bool fits = !__builtin_mul_overflow(l.micro_batch, l.logical_dp, &unit) && unit > 0;
    constexpr int64_t max = std::numeric_limits<int>::max();
    l.accumulation =
        fits ? static_cast<int>(std::clamp<int64_t>(work.global_batch / unit, 1, max)) : 1;
  }
  if (l.reduce == ReduceWhen::automatic) {
    l.reduce = l.shards_grads() && l.accumulation > 1 ? ReduceWhen::each : ReduceWhen::once;
  }
  if (!l.shards_params()) {
    l.reshard = Reshard::always;
  } else if (l.reshard == Reshard::automatic) {
    l.reshard = l.pp > 1 ? Reshard::never : Reshard::always;
  }
}

void settle_context(Layout& l, std::span<const int64_t> kv_heads) {
  if (l.cp == 1) {
    l.context_kind = ContextKind::gather;
    l.context_slices = ContextSlices::zigzag;
    l.ulysses = 1;
  }
  if (l.ulysses == 0) l.ulysses = open_ulysses(l, kv_heads);
}

void settle_stages(Layout& l) {
  if (l.custom_schedule) {
    l.schedule = schedule::Kind::one_f_one_b;
    l.chunks = static_cast<int>(chunks_of(l));
    return;
  }
  if (l.chunks == 0) l.chunks = l.pp == 1 ? 1 : static_cast<int>(chunks_of(l));
  if (!l.has_one_stage()) return;
  l.schedule = schedule::Kind::one_f_one_b;
  l.first_layers.clear();
}

}  // namespace

Layout filled(const Layout& asked, const Workload& work, int64_t ranks,
              std::span<const int64_t> kv_heads) {
  Layout l = asked;
  if (!degrees_are_in_range(l)) return l;  // products might overflow
  settle_degrees(l, ranks);
  settle_data(l, work);
  settle_stages(l);
  settle_context(l, kv_heads);
  if (l.tp == 1) l.sequence_parallel = false;
  if (l.pp == 1 || l.data_ranks() == 1) l.placement = Placement::dp_inside;
  if (l.recompute == Recompute::none) l.recompute_blocks = -1;
  if (!is_fp8(l.precision)) {
    const Layout fresh;
    l.bf16_first = fresh.bf16_first;
    l.bf16_last = fresh.bf16_last;
    l.bf16_blocks.clear();
  }
  return l;
}

Settled settle(const ModelSizes& model, const Workload& work, int64_t ranks, const Layout& asked,
               Whose whose, const LayoutNames& names) {
  Settled settled{filled(asked, work, ranks, model.kv_heads), {}};
  Layout& l = settled.layout;
  if (model.layers > 0 && l.recompute_blocks >= model.layers - 2) l.recompute_blocks = -1;
  if (model.layers > 0 && model.experts == 0) {
    const Layout fresh;
    l.row_budget = fresh.row_budget;
    l.overflow = fresh.overflow;
    l.expert_capacity = fresh.expert_capacity;
  }
  settled.broken = broken_rules({model, work, ranks, asked, l, names}, whose);
  return settled;
}

}  // namespace trireme::spec
