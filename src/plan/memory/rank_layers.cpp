// SPDX-License-Identifier: Apache-2.0
#include "plan/memory/rank_layers.h"

#include <utility>

#include "spec/memory/grad_places.h"
#include "spec/parallel/data_parallel.h"

namespace trireme::plan {
namespace {

using spec::LayerStash;
using spec::Pool;

// Calls visit(cost) for every layer of the rank, in order.
template <typename Visit>
void for_each_layer(const LayerCosts& costs, const RankLives& rank, Visit visit) {
  if (rank.has_embedding) visit(costs.embedding);
  for (int64_t i = 0; i < rank.blocks + rank.other; ++i) {
    const bool is_other = !rank.is_other.empty() && rank.is_other[static_cast<size_t>(i)];
    visit(is_other ? costs.other_block : costs.block);
  }
  if (rank.has_head) visit(costs.head);
}

}  // namespace

int64_t dense_elements(const LayerCost& cost, const Layout& l) {
  return spec::padded_elements(cost.buckets.front().elements, int64_t{l.data_ranks()} * l.cp);
}

std::vector<spec::BucketLayout> buckets_of(const LayerCost& cost, const Layout& l) {
  std::vector<spec::BucketLayout> buckets = cost.buckets;
  for (spec::BucketLayout& bucket : buckets) {
    int64_t ranks = int64_t{l.data_ranks()} * l.cp;
    if (bucket.view == spec::ParamView::expert) {
      const spec::ExpertSizes sizes = spec::expert_sizes(l).value();
      ranks = int64_t{sizes.edp} * sizes.ezero;
    }
    bucket.elements = spec::padded_elements(bucket.elements, ranks);
  }
  return buckets;
}

std::vector<spec::BucketLayout> buckets_of(const LayerCosts& costs, const RankLives& rank,
                                           const Layout& l) {
  std::vector<spec::BucketLayout> buckets;
  for_each_layer(costs, rank, [&](const LayerCost& cost) {
    for (spec::BucketLayout& bucket : buckets_of(cost, l)) buckets.push_back(std::move(bucket));
  });
  return buckets;
}

spec::StageStash frames_of(const LayerCosts& costs, const RankLives& rank, const StageBlocks& cut,
                           int number) {
  const LayerStash& block = stash_of(costs.block, rank);
  const LayerStash& other_block = stash_of(costs.other_block, rank);
  const LayerStash& head = stash_of(costs.head, rank);
  const auto other = static_cast<int64_t>(cut.other_of(number));
  const int64_t blocks = static_cast<int64_t>(cut.of(number)) - other;
  const bool is_first = number == 0, is_last = number + 1 == cut.stages;
  const int64_t x = block.frame_bytes[spec::index_of(Pool::inputs)];
  const int64_t dy = block.frame_bytes[spec::index_of(Pool::gradients)];
  const int64_t inner = blocks + other + (is_first ? 1 : 0) + (is_last ? 1 : 0) - 1;
  spec::StageStash stage;
  for (const Pool pool : {Pool::f_to_b, Pool::f_to_w, Pool::b_to_w}) {
    const size_t at = spec::index_of(pool);
    stage.frame_bytes[at] = blocks * block.frame_bytes[at] + other * other_block.frame_bytes[at] +
                            (is_last ? head.frame_bytes[at] : 0);
  }
  stage.frame_bytes[spec::index_of(Pool::f_to_b)] += inner * x;
  if (!rank.is_merged) stage.frame_bytes[spec::index_of(Pool::b_to_w)] += inner * dy;
  stage.frame_bytes[spec::index_of(Pool::inputs)] = is_first ? 0 : x;
  stage.frame_bytes[spec::index_of(Pool::gradients)] = is_last ? 0 : dy;
  return stage;
}

int64_t grads_in_stash(const spec::Plan& plan, const LayerCosts& costs, const RankLives& rank,
                       const Layout& l) {
  const std::vector<spec::BucketLayout> buckets = buckets_of(costs, rank, l);
  spec::StageStash stage;
  for_each_layer(costs, rank, [&stage](const LayerCost& cost) {
    const LayerStash& layer = cost.merged_stash;
    const bool is_first = stage.layer_at.empty();
    stage.layer_at.push_back(stage.frame_bytes);
    for (const Pool pool : {Pool::f_to_b, Pool::f_to_w}) {
      const size_t at = spec::index_of(pool);
      stage.frame_bytes[at] += layer.frame_bytes[at];
    }
    // The input of a layer is in the frame too, except that of the stage's first layer.
    if (!is_first) {
      stage.frame_bytes[spec::index_of(Pool::f_to_b)] +=
          layer.frame_bytes[spec::index_of(Pool::inputs)];
    }
  });
  spec::StashLayout stash;
  stash.is_merged = rank.is_merged;
  stash.stages.push_back(std::move(stage));
  const auto places = spec::grad_places(plan, stash, buckets);
  int64_t bytes = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i]) bytes += base::bytes_of(spec::grad_specs(plan, buckets[i].size()).leaf);
  }
  return bytes;
}

}  // namespace trireme::plan
