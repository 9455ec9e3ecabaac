// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/copy_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/run/state/copied_state.h"
#include "train/run/state/engine_state.h"

namespace trireme::train {
namespace {

const spec::ModelSpec& copied_model() {
  static const spec::ModelSpec model = spec::make_model({.name = "m",
                                                         .family = spec::Family::llama,
                                                         .layers = 2,
                                                         .hidden = 64,
                                                         .heads = 4,
                                                         .kv_heads = 2,
                                                         .ffn = 128,
                                                         .vocab = 512,
                                                         .max_seq = 32});
  return model;
}
spec::Plan copied_plan(const spec::Layout& layout) {
  return spec::solve_or_throw(copied_model(), {.seq_len = 32}, layout, spec::cpu_backend());
}

// A rank of several processes that a launcher watches.
RankStart launched(int ranks) {
  return {.ranks = ranks, .memory_fd = 9, .peer_memory_fd = 11, .next_epoch = [](RankStart&) {
            return false;
          }};
}
CopyChoice chosen(const std::string& peer, const spec::Layout& layout, const RankStart& start,
                  const std::string& device = "cpu", const std::vector<int>& nodes = {}) {
  config::Config c;
  c.elastic.peer = peer;
  c.system.device = device;
  return choose_copies(c, start, copied_model(), copied_plan(layout), nodes);
}

TEST(CopyChoiceTest, copies_are_kept_where_a_part_of_the_state_is_on_one_rank_only) {
  const spec::Layout sharded{.dp_shard = 4, .zero_stage = 1};
  EXPECT_TRUE(chosen("auto", sharded, launched(4)).is_on);
  EXPECT_TRUE(chosen("auto", {.pp = 2}, launched(2)).is_on);
  EXPECT_TRUE(chosen("auto", {.tp = 2}, launched(2)).is_on);
  const CopyChoice hybrid =
      chosen("auto", {.dp_replicate = 2, .dp_shard = 2, .zero_stage = 1}, launched(4));
  EXPECT_FALSE(hybrid.is_on);
  EXPECT_EQ(hybrid.why_not, "every part of the state is on several ranks");
  EXPECT_TRUE(chosen("true", {.dp_replicate = 4}, launched(4)).is_on);
  EXPECT_FALSE(chosen("false", sharded, launched(4)).is_on);
}

TEST(CopyChoiceTest, replicas_with_muon_trust_no_live_state) {
  EXPECT_TRUE(
      chosen("auto", {.dp_replicate = 4, .optimizer = spec::OptimizerKind::muon}, launched(4))
          .is_on);
}

TEST(CopyChoiceTest, an_abort_may_tear_every_replica_of_plain_data_parallelism) {
  const spec::Layout hybrid{.dp_replicate = 2, .dp_shard = 2, .zero_stage = 1};
  for (const char* device : {"cpu", "cuda"}) {
    EXPECT_TRUE(chosen("auto", {.dp_replicate = 4}, launched(4), device).is_on) << device;
    EXPECT_FALSE(chosen("auto", hybrid, launched(4), device).is_on) << device;
  }
}

TEST(CopyChoiceTest, without_memory_they_are_off_and_refused_if_asked_for) {
  const spec::Layout sharded{.dp_shard = 4, .zero_stage = 1};
  RankStart start = launched(4);
  start.memory_fd = -1;
  EXPECT_FALSE(chosen("auto", sharded, start).is_on);
  EXPECT_TRUE(chosen("auto", sharded, start).why_not.empty());
  EXPECT_THROW(chosen("true", sharded, start), base::ConfigError);
  start = launched(4);
  start.next_epoch = {};
  EXPECT_FALSE(chosen("auto", sharded, start).is_on);
  EXPECT_THROW(chosen("true", sharded, start), base::ConfigError);
  start = launched(4);
  start.process_ranks = 4;
  EXPECT_THROW(chosen("true", sharded, start), base::ConfigError);
  EXPECT_THROW(chosen("true", {}, launched(1)), base::ConfigError);
}

TEST(CopyChoiceTest, copies_are_sent_where_a_node_has_a_part_of_the_state_alone) {
  const auto on_nodes = [](const std::string& peer, const spec::Layout& layout,
                           const std::vector<int>& nodes) {
    return chosen(peer, layout, launched(4), "cpu", nodes);
  };
  const spec::Layout sharded{.dp_shard = 4, .zero_stage = 1};
  EXPECT_TRUE(on_nodes("auto", sharded, {0, 0, 1, 1}).is_sent);
  EXPECT_TRUE(on_nodes("true", sharded, {0, 0, 1, 1}).is_sent);
  EXPECT_FALSE(on_nodes("false", sharded, {0, 0, 1, 1}).is_sent);
  const CopyChoice on_one = on_nodes("auto", sharded, {});
  EXPECT_TRUE(on_one.is_on && !on_one.is_sent && on_one.why_not_sent.empty());
  // Replicas of each shard are on both nodes, or on one.
  const spec::Layout hybrid{.dp_replicate = 2, .dp_shard = 2, .zero_stage = 1};
  const CopyChoice across = on_nodes("auto", hybrid, {0, 0, 1, 1});
  EXPECT_FALSE(across.is_on);
  EXPECT_TRUE(across.may_exist);
  EXPECT_EQ(across.why_not, "every part of the state is on several nodes");
  EXPECT_TRUE(on_nodes("auto", hybrid, {0, 1, 0, 1}).is_sent);
  const CopyChoice asked = on_nodes("true", hybrid, {0, 0, 1, 1});
  EXPECT_TRUE(asked.is_on && !asked.is_sent);
  EXPECT_EQ(asked.why_not_sent, "every part of the state is on several nodes");
  // An abort may tear replicas, but the other node has copies of them.
  const spec::Layout plain{.dp_replicate = 4};
  EXPECT_TRUE(on_nodes("auto", plain, {0, 0, 1, 1}).is_on);
  EXPECT_FALSE(on_nodes("auto", plain, {0, 0, 1, 1}).is_sent);
  RankStart start = launched(4);
  start.peer_memory_fd = -1;
  const CopyChoice own = chosen("auto", sharded, start, "cpu", {0, 0, 1, 1});
  EXPECT_TRUE(own.is_on && !own.is_sent);
}

TEST(CopyLayoutTest, a_copy_has_the_whole_state_and_a_digest_of_its_boxes) {
  for (const spec::Layout& layout :
       {spec::Layout{.dp_shard = 4, .zero_stage = 3}, spec::Layout{.pp = 2, .dp_replicate = 2}}) {
    const spec::Plan plan = copied_plan(layout);
    for (int rank = 0; rank < 4; ++rank) {
      const CopyLayout copy = copy_layout(copied_model(), plan, rank);
      EXPECT_GE(copy.bytes, state_copy_bytes(copied_model(), plan, rank));
      EXPECT_EQ(copy.digest, copy_layout(copied_model(), plan, rank).digest);
      const CopyLayout other = copy_layout(copied_model(), plan, (rank + 2) % 4);
      EXPECT_EQ(copy.digest == other.digest, copy.ranges.empty() && other.ranges.empty());
      EXPECT_EQ(copies_bytes(copy, rank, 2), shape_of(copy, rank, 2).memory_bytes());
    }
  }
}

}  // namespace
}  // namespace trireme::train
