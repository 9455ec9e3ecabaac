// SPDX-License-Identifier: Apache-2.0
#include "plan/rank_memory.h"

#include <algorithm>

namespace trireme::plan {

std::array<double, static_cast<size_t>(Item::count)> rank_memory(
    const Job& job, const spec::Machine& machine, const Stack& stack, const Layout& l,
    const LayerCosts& costs, const RankTimes& times, InFlightTable& table) {
  std::array<double, static_cast<size_t>(Item::count)> bytes{};
  const auto at = [&bytes](Item item) -> double& { return bytes[static_cast<size_t>(item)]; };
  // The first rank has the most micro-batches under way.
  const RankShare& share = times.first;
  const double params = params_of(costs, share), experts = expert_params_of(costs, share);
  const double data = static_cast<double>(l.dp) * l.cp;
  const double expert_data = std::max(1.0, data / l.ep);
  const auto sharded = [&](bool is_sharded) {
    return is_sharded ? params / data + experts / expert_data : params + experts;
  };
  const bool is_fp32 = l.precision == Precision::fp32;
  const double weight = is_fp32 ? 4 : 2;
  at(Item::weights) = sharded(l.zero >= 3) * weight;
  at(Item::gradients) = sharded(l.zero >= 2) * (is_fp32 ? 4 : stack.grad_bytes);
  at(Item::optimizer) = sharded(l.zero >= 1) * (is_fp32 ? 8 : stack.optimizer_bytes);

  const double layer_params = std::max({costs.block.params + costs.block.expert_params,
                                        share.has_embedding ? costs.embedding.params : 0.0,
                                        share.has_head ? costs.head.params : 0.0});
  if (l.zero >= 3) at(Item::transfers) += (l.pp > 1 ? params + experts : 2 * layer_params) * weight;
  if (l.zero >= 2) at(Item::transfers) += 2 * layer_params * stack.grad_bytes;
  if (l.pp > 1) at(Item::transfers) += 4 * costs.block.input;

  // Of what the ranks at both ends keep, the more: the first has the most forwards that wait, the
  // last the most weight gradients that do.
  const InFlight& in_flight = table.find(l, l.micro_batches(job));
  const auto kept = [&](const InFlight::Counts& counts, const LayerCost& c) {
    return counts.f_to_b * c.kept_for_b + counts.f_to_w * c.kept_for_w +
           counts.b_to_w * c.kept_from_b;
  };
  const auto of_rank = [&](const InFlight::Counts& counts) {
    return (share.blocks * kept(counts, costs.block) +
            share.dense_blocks * kept(counts, costs.dense_block)) /
           l.chunks;
  };
  at(Item::activations) = std::max(of_rank(in_flight.first), of_rank(in_flight.last)) +
                          (share.has_head ? costs.head.kept() : 0.0);
  at(Item::working) =
      std::max(costs.block.working,
               share.has_head || l.pp > 1 ? costs.head.working : costs.embedding.working);
  at(Item::reserved) = machine.processor.reserved_bytes + stack.extra_memory;
  return bytes;
}

}  // namespace trireme::plan
