// SPDX-License-Identifier: Apache-2.0
#include "plan/price/pipe_time.h"

#include <algorithm>

#include "plan/price/collective.h"

namespace trireme::plan {
namespace {

// Seconds of one micro-batch on the slowest rank; w is the part of backward that can be deferred.
struct Parts {
  double f = 0, b = 0, w = 0;
};

// Returns the bubble of a step if all other ranks together take `others` times as long as the
// slowest. It is exact for uniform stages (ZB-V: nearly, if w or f is the longest).
double bubble_of(const Layout& l, int64_t micro_batches, double others, const Parts& t) {
  const double all = others * (t.f + t.b + t.w);
  // Few micro-batches do not have enough deferred work to fill the gaps.
  if (l.schedule != Kind::interleaved && micro_batches < 2 * l.pp) return all;
  switch (l.schedule) {
    case Kind::interleaved:
      return all / l.chunks;
    // Qi et al. 2024; w fills at most a gap as long as a forward.
    case Kind::zb_h1:
      return others * (t.f + t.b - std::min(t.w, t.f));
    case Kind::zb_h2:
      return others * std::max(0.0, t.f + t.b - 2 * std::min(t.w, t.f));
    // Zero if the three parts are equal.
    case Kind::zb_v:
      return others *
             std::max({0.0, t.b - t.w, t.f - t.w, (2 * t.f - t.b - t.w) / 2, (t.w - t.f) / 2});
    // DeepSeek-AI 2025 for f = b, without gain from overlap; all ranks but the first wait for a
    // longer backward.
    case Kind::dualpipe_v:
      return others * (t.f + std::max(0.0, t.b - t.w) / 2) +
             std::max(0.0, (others * (t.b - t.f) - t.f) / 2);
    default:
      return all;
  }
}

}  // namespace

PipeSeconds pipe_seconds(const Job& job, const spec::Machine& machine, const Stack& stack,
                         const Layout& l, const LayerCosts& costs, const RankTimes& times) {
  if (l.pp == 1) return {};
  const PhaseSeconds& own = times.slowest_seconds;
  const double others = std::max(0.0, times.all_seconds - own.total());
  PipeSeconds seconds;
  seconds.bubble = bubble_of(l, micro_batches(job, l), others / own.total(),
                             {own.forward, own.backward - own.weight, own.weight});
  const int64_t stride = l.placement == Placement::dp_inside ? int64_t{l.tp} * l.cp * l.data_ranks()
                                                             : int64_t{l.tp} * l.cp;
  // Ranks along tp have the same activation, so that each sends a part of it.
  const double bytes = costs.block.input / (l.sequence_parallel ? 1 : l.tp);
  const double message = message_seconds(machine, stride, bytes);
  const auto m = static_cast<double>(micro_batches(job, l));
  const double steady = 2 * m * l.chunks * message * (1 - stack.pp_overlap);
  const double ends = 2 * (l.pp - 1) * message;
  seconds.messages = steady + ends;
  return seconds;
}

}  // namespace trireme::plan
