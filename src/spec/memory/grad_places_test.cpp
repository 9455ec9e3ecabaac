// SPDX-License-Identifier: Apache-2.0
#include "spec/memory/grad_places.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/shape.h"
#include "spec/memory/predict.h"

namespace trireme::spec {
namespace {

ModelSpec model_to_place(Family family, bool tied) {
  return make_model({.name = "small",
                     .family = family,
                     .layers = 6,
                     .hidden = 128,
                     .heads = 4,
                     .ffn = 512,
                     .vocab = 1024,
                     .max_seq = 64,
                     .tied_head = tied});
}

struct PlacedRank {
  std::vector<StashStage> stages;
  StashLayout stash;
  std::vector<BucketLayout> buckets;
  std::vector<std::optional<SlotHome>> places;

  PlacedRank(const ModelSpec& model, const Plan& plan) {
    stages = stash_stages(model, plan, 0, {});
    stash = stash_layout_of_rank(plan, 0, stages);
    buckets = bucket_layouts(model, plan, 0);
    places = grad_places(plan, stash, buckets);
  }
  int64_t placed() const {
    return std::count_if(places.begin(), places.end(), [](const auto& p) { return p.has_value(); });
  }
};

Plan plan_to_place(const ModelSpec& model, Recompute recompute, int64_t sequences,
                   Layout layout = {}) {
  layout.micro_batch = sequences;
  layout.recompute = recompute;
  return solve_or_throw(model, {.seq_len = 64}, layout, {});
}

// Each place overlaps slots of later layers only, and no other place.
TEST(GradPlacesTest, gradients_reuse_slots_of_later_layers) {
  for (const Family family : {Family::gpt2, Family::llama}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (const int64_t sequences : {1, 3, 8, 40}) {
        const ModelSpec model = model_to_place(family, family == Family::gpt2);
        const Plan plan = plan_to_place(model, recompute, sequences);
        const PlacedRank rank(model, plan);
        const StageStash& stage = rank.stash.stages.front();
        EXPECT_FALSE(rank.places.back()) << "the forward computes the head's gradients";
        struct Place {
          Pool pool;
          int64_t begin, end;
        };
        std::vector<Place> all;
        EXPECT_TRUE(rank.placed() > 0 || sequences < 40);
        for (size_t b = 0; b + 1 < rank.places.size(); ++b) {
          if (!rank.places[b]) continue;
          const auto [pool, begin] = *rank.places[b];
          const int64_t end = begin + base::bytes_of(grad_specs(plan, rank.buckets[b].size()).leaf);
          EXPECT_EQ(begin % base::grain_bytes, 0);
          EXPECT_GE(begin, stage.layer_at[b + 1][index_of(pool)]);
          EXPECT_LE(end, stage.frame_bytes[index_of(pool)]);
          for (const Place& other : all) {
            EXPECT_TRUE(other.pool != pool || other.end <= begin || end <= other.begin);
          }
          all.push_back({pool, begin, end});
          // No slot of this layer or of an earlier one lies there, in forward or backward.
          for (size_t layer = 0; layer <= b; ++layer) {
            for (const auto* homes : {&stage.in_forward, &stage.in_backward}) {
              const std::vector<Slot>& slots = rank.stages.front().layers[layer].stash;
              for (size_t slot = 0; slot < slots.size(); ++slot) {
                const SlotHome& home = (*homes)[layer][slot];
                const int64_t slot_end = home.offset + base::bytes_of(slots[slot].spec);
                EXPECT_TRUE(home.pool != pool || slot_end <= begin) << layer << " " << slot;
              }
            }
          }
        }
      }
    }
  }
}

TEST(GradPlacesTest, only_the_head_needs_separate_memory) {
  const ModelSpec model = model_to_place(Family::llama, false);
  const Plan plan = plan_to_place(model, Recompute::selective, 40);
  const PlacedRank rank(model, plan);
  EXPECT_EQ(rank.placed(), 7);
  EXPECT_EQ(plan.predicted.memory.front().grads,
            base::bytes_of(grad_specs(plan, rank.buckets.back().size()).leaf));
}

// Gradients of several micro-batches, and those that the next forward reads, have separate memory.
TEST(GradPlacesTest, only_gradients_of_one_backward_are_placed) {
  const ModelSpec model = model_to_place(Family::llama, false);
  const auto placed = [&](int microbatches, Layout layout) {
    layout.accumulation = microbatches;
    return PlacedRank(model, plan_to_place(model, Recompute::selective, 40, layout)).placed();
  };
  EXPECT_EQ(placed(1, {}), 7);
  EXPECT_EQ(placed(1, {.tp = 2}), 7);
  EXPECT_EQ(placed(1, {.dp_shard = 2, .zero_stage = 1}), 7);
  EXPECT_EQ(placed(2, {}), 0);
  EXPECT_EQ(placed(1, {.dp_replicate = 2}), 0);
  EXPECT_EQ(placed(1, {.dp_shard = 2, .zero_stage = 2}), 0);
}

}  // namespace
}  // namespace trireme::spec
