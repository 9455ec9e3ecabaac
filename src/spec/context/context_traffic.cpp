// SPDX-License-Identifier: Apache-2.0
#include "spec/context/context_traffic.h"

#include <algorithm>

namespace trireme::spec {
namespace {

constexpr int64_t max_key_sum_bytes = int64_t{64} << 20;
constexpr int64_t min_key_sum_bytes = 256;  // comm::Communicator::set_buffer

}  // namespace

base::TensorSpec context_buffer(const ModelSpec& model, const Plan& plan) {
  const LocalShape shape = local_shape_of(plan);
  const ContextSplit split = shape.context();
  if (split.groups == 1 || split.is_ring || plan.inference) return {};
  int64_t largest = 0;
  for (const LayerSpec& layer : model.layers) {
    const auto* block = std::get_if<BlockSpec>(&layer);
    if (block == nullptr) continue;
    const BlockSpec part = attention_block(local_block(*block, plan.mesh), shape);
    largest = std::max(largest, 2 * gathered_kv_heads(part.kv_heads) * part.head_dim);
  }
  const int64_t bytes = split.tokens() * largest * base::size_of(base::DType::f32);
  return {{std::max(split.groups * min_key_sum_bytes, std::min(bytes, max_key_sum_bytes))},
          base::DType::u8};
}

base::TensorSpec context_reports(const Plan& plan) {
  const int64_t ranks = plan.mesh[Axis::cp];
  if (ranks == 1) return {};
  const int64_t losses = plan.rank_tokens() * base::size_of(base::DType::f32);
  return {{ranks, step_sums_bytes + losses}, base::DType::u8};
}

ContextTraffic predict_context_traffic(const ModelSpec& model, const Plan& plan, int pp_rank) {
  ContextTraffic sum;
  if (plan.mesh[Axis::cp] == 1) return sum;
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    const Facts f = facts(model, layer, local_shape_of(plan), plan.recipe,
                          plan.recompute[static_cast<size_t>(layer)], Backend{});
    const auto sent = [&](const std::vector<CommCost>& costs) {
      return plan.schedule.microbatches * sent_bytes(costs, Axis::cp, plan.mesh);
    };
    sum.forward += sent(f.f_comm);
    sum.backward += sent(f.r_comm) + sent(f.b_comm) + sent(f.w_comm);
  }
  return sum;
}

}  // namespace trireme::spec
