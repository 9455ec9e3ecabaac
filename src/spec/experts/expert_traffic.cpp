// SPDX-License-Identifier: Apache-2.0
#include "spec/experts/expert_traffic.h"

#include <algorithm>
#include <cmath>

namespace trireme::spec {
namespace {

constexpr int64_t max_row_sum_bytes = int64_t{64} << 20;
constexpr int64_t max_load_bytes = 16 << 10;  // of one rank, as small_all_reduce_elements
constexpr int64_t min_part_bytes = 256;     // comm::Communicator::set_buffer

}  // namespace

std::vector<Axis> token_axes(const Plan& plan) {
  if (!plan.layout.sequence_parallel) return {Axis::cp};
  return {Axis::cp, Axis::tp};
}

std::vector<Axis> step_axes(const Plan& plan) {
  std::vector<Axis> axes = {Axis::dp, Axis::zero};
  for (const Axis axis : token_axes(plan)) axes.push_back(axis);
  return axes;
}

int ranks_along(const Sizes& sizes, const std::vector<Axis>& axes) {
  int ranks = 1;
  for (const Axis axis : axes) ranks *= sizes[axis];
  return ranks;
}

bool sums_loads_of_step(const ModelSpec& model) {
  const MoeSpec* moe = moe_of(model);
  return moe != nullptr && moe->balance.aux != 0 && moe->balance.scope == AuxScope::global;
}

base::TensorSpec expert_buffer(const ModelSpec& model, const Plan& plan) {
  const MoeSpec* moe = moe_of(model);
  if (moe == nullptr) return {};
  const int loads =
      ranks_along(plan.mesh, sums_loads_of_step(model) ? step_axes(plan) : token_axes(plan));
  const int cuts = plan.mesh[Axis::ep] * plan.mesh[Axis::etp];
  if (loads == 1 && cuts == 1) return {};
  const int64_t load =
      plan.layout.micro_batch * moe->router.experts * base::size_of(base::DType::f32);
  int64_t bytes = std::max(
      loads * std::clamp(base::round_up(load, min_part_bytes), min_part_bytes, max_load_bytes),
      cuts * max_load_bytes);
  if (plan.mesh[Axis::etp] > 1) {
    const auto rows = static_cast<double>(local_shape_of(plan).rows() * moe->router.chosen);
    const double wanted =
        rows * plan.layout.row_budget *
        static_cast<double>(typical_block(model).width * base::size_of(plan.recipe.storage));
    bytes = std::max(bytes, static_cast<int64_t>(std::min(std::ceil(wanted),
                                                          static_cast<double>(max_row_sum_bytes))));
  }
  return {{bytes}, base::DType::u8};
}

ExpertTraffic predict_expert_traffic(const ModelSpec& model, const Plan& plan, int pp_rank) {
  ExpertTraffic sum;
  if (moe_of(model) == nullptr) return sum;
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    const auto* block = std::get_if<BlockSpec>(&model.layers[static_cast<size_t>(layer)]);
    if (block == nullptr || !block->moe) continue;
    const Facts f = facts(model, layer, local_shape_of(plan), plan.recipe,
                          plan.recompute[static_cast<size_t>(layer)], Backend{});
    const auto sent = [&](const std::vector<CommCost>& costs) {
      return plan.schedule.microbatches *
             (sent_bytes(costs, Axis::ep, plan.mesh) + sent_bytes(costs, Axis::etp, plan.mesh));
    };
    sum.forward += sent(f.f_comm);
    sum.backward += sent(f.r_comm) + sent(f.b_comm) + sent(f.w_comm);
  }
  return sum;
}

}  // namespace trireme::spec
