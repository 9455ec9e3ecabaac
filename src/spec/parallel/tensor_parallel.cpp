// SPDX-License-Identifier: Apache-2.0
#include "spec/parallel/tensor_parallel.h"

#include <algorithm>

#include "spec/parallel/data_parallel.h"

namespace trireme::spec {
namespace {

constexpr int64_t max_buffer_bytes = int64_t{64} << 20;

const HeadSpec& head_of(const ModelSpec& model) { return std::get<HeadSpec>(model.layers.back()); }

}  // namespace

std::vector<Range> summed_along_tp(const BucketLayout& layout, bool sequence_parallel) {
  std::vector<Range> summed;
  const auto add = [&summed](int64_t begin, int64_t end) {
    if (begin < end) summed.push_back({begin, end});
  };
  if (sequence_parallel) add(layout.by_rows_decayed.begin, layout.by_rows_decayed.end);
  add(sequence_parallel ? layout.by_rows.begin : layout.partial.begin, layout.partial.end);
  return summed;
}

std::vector<Range> counted_along_tp(const BucketLayout& layout, Range held, const Coord& coord) {
  if (coord[Axis::tp] == 0) return {held};
  std::vector<Range> counted;
  for (const Range& cut : layout.cut) {
    const Range common{std::max(cut.begin, held.begin), std::min(cut.end, held.end)};
    if (common.begin < common.end) counted.push_back(common);
  }
  return counted;
}

base::TensorSpec tensor_buffer(const ModelSpec& model, const Plan& plan) {
  const int64_t ranks = plan.mesh[Axis::tp];
  if (ranks == 1) return {};
  // A sum over the stream is received once, a small one from every rank.
  const int64_t stream =
      plan.rank_tokens() * head_of(model).width * base::size_of(plan.recipe.storage);
  const int64_t small = ranks * small_all_reduce_elements * base::size_of(base::DType::f32);
  return {{std::max(small, std::min(stream, max_buffer_bytes))}, base::DType::u8};
}

TensorTraffic predict_tensor_traffic(const ModelSpec& model, const Plan& plan, int pp_rank) {
  TensorTraffic sum;
  const int ranks = plan.mesh[Axis::tp];
  if (ranks == 1) return sum;
  const int64_t leaves = hosted_workers(plan) * reduce_rounds(plan);
  for (const int layer : layers_of_rank(model, plan, pp_rank)) {
    const Facts f = facts(model, layer, local_shape_of(plan), plan.recipe,
                          plan.recompute[static_cast<size_t>(layer)], Backend{});
    const auto sent = [&](const std::vector<CommCost>& costs) {
      return sent_bytes(costs, Axis::tp, plan.mesh);
    };
    sum.forward += plan.schedule.microbatches * sent(f.f_comm);
    sum.backward += plan.schedule.microbatches * (sent(f.r_comm) + sent(f.b_comm) + sent(f.w_comm));
    for (const Range& range :
         summed_along_tp(bucket_layout(f.params, plan.mesh), plan.layout.sequence_parallel)) {
      sum.grads += leaves * sent_bytes({CommKind::all_reduce, Axis::tp, range.end - range.begin,
                                        plan.recipe.grad},
                                       ranks);
    }
  }
  return sum;
}

}  // namespace trireme::spec
