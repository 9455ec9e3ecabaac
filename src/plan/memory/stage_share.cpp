// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/stage_share.h"

#include <algorithm>

#include "plan/memory/block_kinds.h"

namespace trireme::plan {
double params_of(const LayerCosts& c, const RankShare& share) {
  return share.blocks * c.block.params + share.other_blocks * c.other_block.params +
         (share.has_embedding ? c.embedding.params : 0) + (share.has_head ? c.head.params : 0);
}

double expert_params_of(const LayerCosts& c, const RankShare& share) {
  return share.blocks * c.block.expert_params + share.other_blocks * c.other_block.expert_params;
}

PhaseSeconds seconds_of(const Stack& stack, const LayerCosts& costs, const RankShare& share) {
  PhaseSeconds sum;
  const double host = stack.host_seconds * stack.kernels;
  const auto add = [&](const LayerCost& c, double count, bool is_end) {
    if (count <= 0) return;
    const double f = c.f + c.f_tp + c.f_cp + c.f_ep;
    const double b = c.b + c.w + c.r + c.b_tp + c.r_tp + c.b_cp + c.b_ep + c.r_ep;
    const double f_wait = std::max(0.0, c.f_kernels * host - f);
    const double b_wait = std::max(0.0, (c.b_kernels + c.r_kernels) * host - b);
    sum.forward += count * (f + f_wait);
    sum.backward += count * (b + b_wait);
    sum.weight += count * c.w;
    sum.host += count * (f_wait + b_wait);
    const double tensor = c.f_tp + c.b_tp + c.r_tp;
    sum.tensor += count * tensor;
    if (is_end) sum.ends += count * (f + b - tensor);
  };
  add(costs.block, share.blocks, false);
  add(costs.other_block, share.other_blocks, false);
  add(costs.embedding, share.has_embedding ? 1 : 0, true);
  add(costs.head, share.has_head ? 1 : 0, true);
  return sum;
}

int64_t stage_of(const Layout& l, int rank, int chunk) {
  if (schedule::named(l.schedule).is_v && chunk == 1) return int64_t{2} * l.pp - 1 - rank;
  return rank + int64_t{chunk} * l.pp;
}

RankShare share_of(const Layout& l, const StageBlocks& cut, int rank) {
  RankShare share;
  for (int chunk = 0; chunk < l.chunks; ++chunk) {
    const int64_t stage = stage_of(l, rank, chunk);
    const double other = cut.other_of(stage);
    share.blocks += cut.of(stage) - other;
    share.other_blocks += other;
    share.has_embedding = share.has_embedding || stage == 0;
    share.has_head = share.has_head || stage + 1 == cut.stages;
  }
  return share;
}

EndRanks end_ranks(const Layout& l) {
  EndRanks all;
  const auto add = [&](int rank) {
    const bool is_new = all.count == 0 || rank > all.ranks[static_cast<size_t>(all.count) - 1];
    if (rank < l.pp && is_new) all.ranks[static_cast<size_t>(all.count++)] = rank;
  };
  add(0);
  add(1);
  // The first ranks may have only blocks without experts.
  if (!schedule::named(l.schedule).splits_backward) add(std::max(2, l.pp / 2));
  if (schedule::named(l.schedule).splits_backward) {
    constexpr int parts = static_cast<int>(EndRanks::max_count) - 2;
    for (int i = 1; i < parts; ++i) add(std::max(2, l.pp * i / parts));
  }
  add(l.pp - 1);
  return all;
}

RankTimes rank_times(const Job& job, const Layout& l, const Stack& stack, const LayerCosts& costs) {
  const auto blocks = static_cast<double>(job.model.blocks());
  const int64_t stages = int64_t{l.pp} * l.chunks;
  const std::vector<bool> is_other = block_kinds(job, stack, l).is_other;
  const CutCosts cut{costs.embedding.cut_flops, costs.block.cut_flops, costs.head.cut_flops};
  RankTimes times;
  if (stack.even_cut) {
    times.cut = even_blocks(blocks, stages);
    times.cut.is_other = is_other;
  } else {
    times.cut = is_other.empty()
                    ? balanced_blocks(blocks, stages, cut)
                    : balanced_blocks(is_other, stages, cut, costs.other_block.cut_flops);
  }
  const auto other = static_cast<double>(std::ranges::count(is_other, true));
  times.all_seconds = seconds_of(stack, costs, {blocks - other, other, true, true}).total();
  times.ends = end_ranks(l);
  double longest = -1;
  for (size_t i = 0; i < static_cast<size_t>(times.ends.count); ++i) {
    const RankShare share = share_of(l, times.cut, times.ends.ranks[i]);
    times.shares[i] = share;
    const PhaseSeconds seconds = seconds_of(stack, costs, share);
    if (seconds.total() > longest) {
      longest = seconds.total();
      times.slowest = share;
      times.slowest_seconds = seconds;
    }
  }
  return times;
}

}  // namespace trireme::plan
