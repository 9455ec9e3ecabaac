// SPDX-License-Identifier: Apache-2.0
#include "plan/pipe_time.h"

#include <algorithm>

#include "plan/collective.h"

namespace trireme::plan {
namespace {

// The wait of a step by what other ranks take, `others`: their forward, backward without what can
// be put off, and what can.
double bubble_of(const Layout& l, int64_t micro_batches, double forward, double backward,
                 double weight) {
  const double all = forward + backward + weight;
  // With few micro-batches there is too little to put into the gaps.
  if (l.pipe != Pipe::interleaved && micro_batches < 2 * l.pp) return all;
  switch (l.pipe) {
    case Pipe::interleaved:
      return all / l.chunks;
    case Pipe::zb_h1:
      return std::max(0.0, forward + backward - weight);
    case Pipe::zb_h2:
      return std::max(0.0, forward + backward - 2 * weight);
    // Two chunks of half the size; nothing is left where the three parts are equal.
    case Pipe::zb_v:
      return std::max(0.0, forward + backward - 2 * weight) / 2;
    case Pipe::dualpipe_v:
      return std::max(0.0, forward + 2 * backward - weight) / 2;
    default:
      return all;
  }
}

}  // namespace

PipeSeconds pipe_seconds(const Job& job, const spec::Machine& machine, const Stack& stack,
                         const Layout& l, const LayerCosts& costs, const RankTimes& times) {
  if (l.pp == 1) return {};
  const PhaseSeconds& own = times.last_seconds;
  const double others = std::max(0.0, times.all_seconds - own.total());
  const double share = others / own.total();
  PipeSeconds seconds;
  seconds.bubble = bubble_of(l, l.micro_batches(job), share * own.forward,
                             share * (own.backward - own.weight), share * own.weight);
  const int64_t stride =
      l.placement == Placement::dp_inside ? int64_t{l.tp} * l.cp * l.dp : int64_t{l.tp} * l.cp;
  // Ranks along tp send the same activation: each a part of it.
  const double bytes = costs.block.input / (l.sequence_parallel ? 1 : l.tp);
  const double message = message_seconds(machine, stride, bytes);
  const auto m = static_cast<double>(l.micro_batches(job));
  const double steady = 2 * m * l.chunks * message * (1 - stack.pp_overlap);
  const double ends = 2 * (l.pp - 1) * message;
  seconds.messages = steady + ends;
  return seconds;
}

}  // namespace trireme::plan
