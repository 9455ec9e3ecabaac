// SPDX-License-Identifier: Apache-2.0
#include "plan/stage_share.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme::plan {
namespace {

double block_seconds(const LayerCost& c) {
  return c.f + c.b + c.w + c.r + c.f_tp + c.b_tp + c.r_tp + c.f_cp + c.b_cp + c.f_ep + c.b_ep;
}

// Blocks of one stage at most, where none may take longer than `seconds`.
double most_blocks(double seconds, double ends, double block) {
  return std::max(0.0, std::floor((seconds - ends) / block * (1 + 1e-12)));
}

// Blocks of the first, a middle and the last of `stages`.
struct Cut {
  double first = 0, middle = 0, last = 0;
};

Cut even_cut(double blocks, double stages) {
  const double middle = std::ceil(blocks / stages);
  return {middle, middle, std::max(0.0, blocks - middle * (stages - 1))};
}

// The shortest time of the dearest stage is that of some whole number of blocks on one of the three
// kinds of stages.
Cut balanced_cut(double blocks, double stages, double block, double embedding, double head) {
  double best = INFINITY;
  const double low = std::max(0.0, std::floor(blocks / stages) - 2);
  for (const double ends : {0.0, embedding, head}) {
    for (double count = low;; count += 1) {
      const double seconds = ends + count * block;
      if (seconds >= best) break;
      const double room = most_blocks(seconds, embedding, block) +
                          most_blocks(seconds, head, block) +
                          (stages - 2) * most_blocks(seconds, 0, block);
      if (room >= blocks && seconds >= embedding && seconds >= head) {
        best = seconds;
        break;
      }
    }
  }
  Cut cut{most_blocks(best, embedding, block), most_blocks(best, 0, block),
          most_blocks(best, head, block)};
  // What the others leave for the last.
  cut.last = std::clamp(blocks - cut.first - (stages - 2) * cut.middle, 0.0, cut.last);
  return cut;
}

}  // namespace

double params_of(const LayerCosts& c, const RankShare& share) {
  return share.blocks * c.block.params + share.dense_blocks * c.dense_block.params +
         (share.has_embedding ? c.embedding.params : 0) + (share.has_head ? c.head.params : 0);
}

double expert_params_of(const LayerCosts& c, const RankShare& share) {
  return share.blocks * c.block.expert_params;
}

PhaseSeconds seconds_of(const Stack& stack, const LayerCosts& costs, const RankShare& share) {
  PhaseSeconds sum;
  const double host = stack.host_seconds * stack.kernels;
  const auto add = [&](const LayerCost& c, double count, bool is_end) {
    if (count <= 0) return;
    const double f = c.f + c.f_tp + c.f_cp + c.f_ep;
    const double b = c.b + c.w + c.r + c.b_tp + c.r_tp + c.b_cp + c.b_ep;
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
  add(costs.dense_block, share.dense_blocks, false);
  add(costs.embedding, share.has_embedding ? 1 : 0, true);
  add(costs.head, share.has_head ? 1 : 0, true);
  return sum;
}

RankTimes rank_times(const Job& job, const Layout& l, const Stack& stack, const LayerCosts& costs) {
  const auto blocks = static_cast<double>(job.model.blocks());
  const double dense =
      job.experts ? std::min(blocks, static_cast<double>(job.experts->dense_layers)) : 0;
  const RankShare all{blocks - dense, dense, true, true};
  RankTimes times;
  times.all_seconds = seconds_of(stack, costs, all).total();
  if (l.pp == 1) {
    times.first = times.last = all;
    times.last_seconds = seconds_of(stack, costs, all);
    return times;
  }
  const double stages = static_cast<double>(l.pp) * l.chunks, chunks = l.chunks;
  const Cut cut = stack.even_cut
                      ? even_cut(blocks, stages)
                      : balanced_cut(blocks, stages, block_seconds(costs.block),
                                     block_seconds(costs.embedding), block_seconds(costs.head));
  // Two chunks in the form of a V: the first rank has the last stage, too.
  const bool is_v = l.pipe == Pipe::zb_v || l.pipe == Pipe::dualpipe_v;
  const auto share = [&](double count, bool has_embedding, bool has_head) {
    const double own_dense = has_embedding ? std::min(dense, count) : 0;
    return RankShare{count - own_dense, own_dense, has_embedding, has_head};
  };
  const double more = (chunks - 1) * cut.middle;
  const RankShare first = is_v ? share(cut.first + cut.last, true, true)
                               : share(std::min(blocks, cut.first + more), true, false);
  const RankShare middle = share(std::min(blocks, cut.middle + more), false, false);
  const RankShare last = is_v ? middle : share(std::min(blocks, cut.last + more), false, true);
  times.first = first;
  std::array<RankShare, 3> ranks = {first, middle, last};
  double longest = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 1 && l.pp == 2 && !is_v) continue;  // there is none
    const PhaseSeconds seconds = seconds_of(stack, costs, ranks[i]);
    if (seconds.total() > longest) {
      longest = seconds.total();
      times.last = ranks[i];
      times.last_seconds = seconds;
    }
  }
  return times;
}

}  // namespace trireme::plan
