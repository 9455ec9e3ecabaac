// SPDX-License-Identifier: Apache-2.0
#include "plan/rank_memory.h"

#include <algorithm>

#include "plan/pipe_time.h"

namespace trireme::plan {

std::array<double, static_cast<size_t>(Item::count)> rank_memory(
    const Job& job, const spec::Machine& machine, const Stack& stack, const Layout& l,
    const LayerCosts& costs, const RankTimes& times) {
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

  const double kept = share.blocks * costs.block.kept + share.dense_blocks * costs.dense_block.kept;
  const double in_flight = kept_chunks(l, l.micro_batches(job)) / l.chunks;
  at(Item::activations) = kept * in_flight + (share.has_head ? costs.head.kept : 0.0);
  at(Item::working) =
      std::max(costs.block.working,
               share.has_head || l.pp > 1 ? costs.head.working : costs.embedding.working);
  at(Item::reserved) = machine.processor.reserved_bytes + stack.extra_memory;
  return bytes;
}

}  // namespace trireme::plan
