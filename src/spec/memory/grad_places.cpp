// SPDX-License-Identifier: Apache-2.0
#include "spec/memory/grad_places.h"

#include "base/check.h"

namespace trireme::spec {
namespace {

// Do gradients come from one backward, and are they dead before the next forward? Plain data
// parallel updates during that forward.
bool is_one_backward(const Plan& plan, const StashLayout& stash) {
  return !plan.inference && plan.schedule.microbatches == 1 && plan.stages() == 1 &&
         stash.is_merged && !plan.zero.grads && (!sums_with_peers(plan.mesh) || plan.zero.optim);
}

}  // namespace

std::vector<std::optional<SlotHome>> grad_places(const Plan& plan, const StashLayout& stash,
                                                 std::span<const BucketLayout> buckets) {
  std::vector<std::optional<SlotHome>> places(buckets.size());
  if (!is_one_backward(plan, stash)) return places;
  const StageStash& stage = stash.stages.front();
  // Every layer begins with its dense bucket without Param::is_matrix.
  std::vector<size_t> layer_of;
  size_t layers = 0;
  for (const BucketLayout& bucket : buckets) {
    if (bucket.view == ParamView::dense && !bucket.is_matrix) ++layers;
    layer_of.push_back(layers - 1);
  }
  TRIREME_CHECK(stage.layer_at.size() == layers, "{} layers, buckets of {}", stage.layer_at.size(),
                layers);
  // The backward goes from the last layer to the first, and frees frames from their ends.
  std::array<int64_t, pool_count> used{};
  for (size_t b = buckets.size(); b-- > 0;) {
    if (layer_of[b] + 1 == layers) continue;
    const int64_t bytes = base::bytes_of(grad_specs(plan, buckets[b].size()).leaf);
    for (const Pool pool : {Pool::f_to_w, Pool::f_to_b}) {
      const size_t at = index_of(pool);
      const int64_t end = stage.frame_bytes[at] - used[at];
      if (end - bytes < stage.layer_at[layer_of[b] + 1][at]) continue;
      places[b] = {pool, end - bytes};
      used[at] += bytes;
      break;
    }
  }
  return places;
}

}  // namespace trireme::spec
