// SPDX-License-Identifier: Apache-2.0
#include "spec/layout/rules.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "schedule/lives.h"
#include "spec/layout/rule_samples_test.h"
#include "spec/parallel/pipeline_parallel.h"
#include "spec/plan.h"

namespace trireme::spec {
namespace {

using Texts = std::vector<std::string>;

const ModelDims dims{.heads = 8, .kv_heads = 4, .ffn = 96};

struct Asked {
  Layout layout;
  Workload work = {.seq_len = 1};
  int64_t ranks = 0;
};

Texts texts(const Asked& asked, const ModelDims& model = dims) {
  Texts all;
  for (const Broken& broken :
       settle(sizes_of(model), asked.work, asked.ranks, asked.layout).broken) {
    EXPECT_FALSE(broken.rule->keys.empty()) << broken.text;
    all.push_back(broken.text);
  }
  return all;
}

// ---- the list of rules

TEST(RuleBook, every_rule_has_a_sample_that_breaks_it_alone) {
  std::set<std::string> seen;
  for (const BrokenSample& sample : broken_samples()) {
    const Rule* rule = find_rule(sample.id);
    ASSERT_NE(rule, nullptr) << sample.id;
    seen.insert(sample.id);
    std::set<std::string> ids;
    for (const Broken& broken :
         settle(sample_sizes(sample), sample.work, sample.ranks, sample.asked).broken) {
      ids.insert(std::string(broken.rule->id));
      EXPECT_NE(to_text(broken).find(fmt::format(" [{}]", broken.rule->id)), std::string::npos);
    }
    EXPECT_EQ(ids, std::set<std::string>{sample.id});
  }
  for (const Rule& rule : rule_book()) {
    EXPECT_TRUE(seen.contains(std::string(rule.id))) << rule.id << ": no sample";
  }
}

TEST(RuleBook, ids_are_unique_and_rules_complete) {
  std::set<std::string_view> ids;
  for (const Rule& rule : rule_book()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    EXPECT_TRUE(rule.holds != nullptr && rule.message != nullptr) << rule.id;
    EXPECT_FALSE(rule.keys.empty()) << rule.id;
  }
  EXPECT_EQ(find_rule("no.such"), nullptr);
}

TEST(RuleBook, solve_gives_a_plan_or_every_broken_rule) {
  for (const BrokenSample& sample : broken_samples()) {
    // The model of the samples has neither.
    if (sample.experts > 0 || sample.whole_qk_norm) continue;
    const ModelSpec model = make_model(sample_dims(sample));
    const Solved solved = solve(model, sample.work, sample.asked, {}, sample.ranks);
    ASSERT_FALSE(solved.broken.empty()) << sample.id;
    if (sample.ranks != 0) continue;
    try {
      (void)solve_or_throw(model, sample.work, sample.asked, {});
      FAIL() << sample.id;
    } catch (const base::ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("[" + sample.id + "]"), std::string::npos)
          << error.what();
    }
  }
}

// The search uses the traits of schedules, which must describe the generated schedules.
TEST(RuleBook, named_schedules_have_the_traits_that_rules_read) {
  for (const schedule::Named& named : schedule::catalogue()) {
    if (named.kind == schedule::Kind::dualpipe) continue;
    for (int pp = 2; pp <= 5; ++pp) {
      for (int m = 1; m <= 14; ++m) {
        for (const int chunks : {named.chunks, 3}) {
          if (named.chunks != 0 && chunks != named.chunks) continue;
          const auto made = schedule::generate(named.kind, {pp, m, chunks});
          if (!made) continue;
          Plan plan;
          plan.layout = {.pp = pp,
                         .dp_shard = 2,
                         .zero_stage = 2,
                         .schedule = named.kind,
                         .chunks = chunks == 0 ? schedule::default_chunks : chunks,
                         .accumulation = m,
                         .logical_dp = 2,
                         .reduce = ReduceWhen::each};
          plan.mesh[Axis::zero] = 2;
          plan.schedule = made.value();
          plan.first_layer_of_stage.resize(static_cast<size_t>(plan.schedule.stages()));
          bool splits = false;
          for (const auto& program : plan.schedule.program) {
            splits = splits || schedule::splits_backward(program);
          }
          // Some split none of a few micro-batches.
          if (!named.splits_backward || m >= 2 * pp) {
            EXPECT_EQ(splits, named.splits_backward);
          }
          const schedule::Lane& lane = plan.schedule.lanes.front();
          EXPECT_EQ(lane.front() == lane.back(), named.is_v);
          const ModelSizes any_model;
          const RuleCase c{any_model, {}, 0, plan.layout, plan.layout, layout_names()};
          const bool holds =
              find_rule("zero.order")->holds(c) && find_rule("zero.split_backward")->holds(c);
          EXPECT_EQ(holds, !named.splits_backward && leaves_come_in_turn(plan, true))
              << named.name << " pp " << pp << " m " << m << " chunks " << chunks;
        }
      }
    }
  }
}

// ---- open fields

TEST(Settle, open_fields_are_filled_in) {
  const ModelSizes sizes = sizes_of(dims);
  const Layout one =
      settle(sizes, {.seq_len = 1}, 0, {.dp_shard = -1, .zero_stage = -1, .micro_batch = 3}).layout;
  EXPECT_EQ(one.ranks(), 1);
  EXPECT_EQ(one.zero_stage, 0);
  EXPECT_EQ(one.global_batch(), 3);
  const Settled settled = settle(sizes, {.seq_len = 1, .global_batch = 24}, 16,
                                 {.tp = 2, .dp_replicate = 2, .dp_shard = -1, .zero_stage = -1});
  EXPECT_TRUE(settled.broken.empty());
  EXPECT_EQ(settled.layout.dp_shard, 4);
  EXPECT_EQ(settled.layout.zero_stage, 3);
  EXPECT_EQ(settled.layout.logical_dp, 8);
  EXPECT_EQ(settled.layout.accumulation, 3);
  EXPECT_EQ(settled.layout.reduce, ReduceWhen::each);
  EXPECT_TRUE(settled.layout.shards_params());
}

TEST(Settle, fields_without_a_meaning_are_not_refused) {
  const Settled settled = settle(sizes_of(dims), {.seq_len = 7}, 0,
                                 {.dp_shard = -1,
                                  .zero_stage = 2,
                                  .sequence_parallel = true,
                                  .schedule = schedule::Kind::zb_v});
  EXPECT_TRUE(settled.broken.empty());
  EXPECT_EQ(settled.layout.zero_stage, 0);
  EXPECT_FALSE(settled.layout.sequence_parallel);
  EXPECT_EQ(settled.layout.schedule, schedule::Kind::one_f_one_b);
  EXPECT_EQ(settled.layout.chunks, 1);
}

TEST(Settle, context_parallelism_gets_its_ulysses_degree_from_the_model) {
  const auto settled = [](Layout layout, int64_t ranks = 0) {
    return settle(sizes_of(dims), {.seq_len = 64}, ranks, layout).layout;
  };
  const Layout one = settled(
      {.context_kind = ContextKind::ring, .context_slices = ContextSlices::striped, .ulysses = 4});
  EXPECT_EQ(one.context_kind, ContextKind::gather) << "no meaning without cp";
  EXPECT_EQ(one.context_slices, ContextSlices::zigzag);
  EXPECT_EQ(one.ulysses, 1);
  EXPECT_EQ(settled({.cp = 8}).ulysses, 1);
  EXPECT_EQ(settled({.cp = 8, .context_kind = ContextKind::ulysses}).ulysses, 8);
  EXPECT_EQ(settled({.cp = 8, .context_kind = ContextKind::ulysses_gather}).ulysses, 4);
  EXPECT_EQ(settled({.tp = 2, .cp = 8, .context_kind = ContextKind::ulysses_ring}).ulysses, 2);
  EXPECT_EQ(settled({.cp = 4, .dp_shard = -1, .zero_stage = -1}, 16).dp_shard, 4);
}

TEST(Settle, an_open_zero_stage_shards_over_cp_too) {
  const auto stage = [](Layout layout) {
    return settle(sizes_of(dims), {.seq_len = 64}, 0, layout).layout.zero_stage;
  };
  EXPECT_EQ(stage({.cp = 2, .zero_stage = -1}), 3);
  EXPECT_EQ(stage({.cp = 2, .dp_replicate = 2, .zero_stage = -1}), 3);
  EXPECT_EQ(stage({.cp = 2, .zero_stage = 0}), 0);
  EXPECT_EQ(stage({.zero_stage = -1}), 0);
}

TEST(Settle, a_pipelines_parameters_stay_unless_asked_otherwise) {
  const auto keeps = [](Layout layout) {
    layout.dp_shard = 2;
    return settle(sizes_of(dims), {.seq_len = 1}, 0, layout).layout.keeps_params();
  };
  EXPECT_TRUE(keeps({.pp = 2, .zero_stage = 3}));
  EXPECT_FALSE(keeps({.pp = 2, .zero_stage = 2}));
  EXPECT_FALSE(keeps({.pp = 2, .zero_stage = 3, .reshard = Reshard::always}));
  EXPECT_FALSE(keeps({.zero_stage = 3}));
  EXPECT_TRUE(keeps({.zero_stage = 3, .reshard = Reshard::never}));
}

// ---- messages

TEST(Rules, degrees_must_multiply_to_the_ranks) {
  EXPECT_EQ(texts({{.dp_replicate = 2, .dp_shard = 2, .zero_stage = -1}, {.seq_len = 1}, 6}),
            Texts{"dp_replicate = 2 x dp_shard = 2: that needs 4 ranks, but there are 6; nearest: "
                  "dp_replicate = 3 or dp_shard = 3, or 4 ranks"});
  EXPECT_EQ(texts({{.dp_replicate = 4, .dp_shard = -1, .zero_stage = -1}, {.seq_len = 1}, 6}),
            Texts{"dp_replicate = 4: 6 ranks do not divide by 4; nearest: dp_replicate = 3 or "
                  "dp_replicate = 6"});
  EXPECT_EQ(
      texts({{}, {.seq_len = 1}, 2}),
      Texts{"dp_replicate = 1: that needs 1 rank, but there are 2; nearest: dp_replicate = 2 or "
            "dp_shard = 2, or 1 rank"});
  // Degrees of the tensor axis that the model does not allow are not offered.
  EXPECT_EQ(texts({{.tp = 4}, {.seq_len = 1}, 12}),
            Texts{"tp = 4: that needs 4 ranks, but there are 12; nearest: dp_replicate = 3 or "
                  "dp_shard = 3, or 4 ranks"});
}

TEST(Rules, the_model_must_divide_by_tp) {
  EXPECT_EQ(texts({{.tp = 3}}), Texts{"tp = 3: heads = 8 and kv_heads = 4 do not divide by it; "
                                      "nearest: 2 or 4"});
  EXPECT_EQ(texts({{.tp = 8}}), Texts{"tp = 8: kv_heads = 4 does not divide by it; nearest: 4"});
  EXPECT_EQ(texts({{.tp = 3, .dp_shard = -1, .zero_stage = -1}, {.seq_len = 1}, 6}),
            Texts{"tp = 3: heads = 8 and kv_heads = 4 do not divide by it; nearest: 2"});
  EXPECT_EQ(texts({{.tp = 4}}, {.heads = 8, .ffn = 8, .vocab = 5}),
            Texts{"tp = 4: with a vocabulary of 5 a rank would have no rows; nearest: 2"});
}

TEST(Rules, the_batch_must_divide) {
  EXPECT_EQ(texts({{.dp_replicate = 4, .micro_batch = 2}, {.seq_len = 1, .global_batch = 20}}),
            Texts{"global_batch = 20: must be a multiple of micro_batch = 2 x 4 data ranks = 8; "
                  "nearest: 16 or 24"});
  EXPECT_EQ(texts({{.dp_replicate = 2, .micro_batch = 2, .logical_dp = 8},
                   {.seq_len = 1, .global_batch = 8}}),
            Texts{"global_batch = 8: must be a multiple of micro_batch = 2 x 8 workers "
                  "(logical_dp) = 16; nearest: 16"});
  EXPECT_EQ(texts({{.dp_replicate = 4, .logical_dp = 6}}),
            Texts{"logical_dp = 6: must be a multiple of the 4 data ranks; nearest: 4 or 8"});
  EXPECT_EQ(
      texts({{.tp = 4, .sequence_parallel = true, .micro_batch = 2}, {.seq_len = 15}}),
      Texts{"seq_len = 15: with sequence_parallel the 30 tokens of a micro-batch must divide by tp "
            "= 4; nearest: 14 or 16"});
}

Texts context_texts(const Layout& layout, int64_t seq_len, int64_t ranks = 0) {
  return texts({layout, {.seq_len = seq_len}, ranks});
}

TEST(Rules, the_sequence_must_divide_into_slices) {
  EXPECT_EQ(context_texts({.cp = 4}, 20),
            Texts{"seq_len = 20: with context_slices = zigzag it must divide by 2 x cp = 8; "
                  "nearest: 16 or 24, cp = 2 or 5, or context_slices = contiguous or striped at "
                  "this degree"});
  EXPECT_EQ(context_texts({.cp = 4, .context_slices = ContextSlices::striped}, 18),
            Texts{"seq_len = 18: with context_slices = striped it must divide by cp = 4; nearest: "
                  "16 or 20, cp = 3 or 6"});
  EXPECT_EQ(context_texts({.cp = 2, .context_slices = ContextSlices::blocks}, 2564), Texts{});
  EXPECT_EQ(context_texts({.cp = 1}, 7), Texts{});
  // Each rank's rows are cut along tp, too.
  EXPECT_EQ(context_texts({.tp = 4, .cp = 2, .sequence_parallel = true}, 12),
            Texts{"seq_len = 12: with sequence_parallel the 6 tokens of a micro-batch must divide "
                  "by tp = 4; nearest: 8 or 16"});
}

TEST(Rules, heads_must_divide_by_the_ranks_that_exchange_them) {
  const auto layout = [](ContextKind kind, int cp, int ulysses = 0, int tp = 1) {
    return Layout{.tp = tp, .cp = cp, .context_kind = kind, .ulysses = ulysses};
  };
  using enum ContextKind;
  for (const int cp : {2, 4, 8}) EXPECT_EQ(context_texts(layout(ulysses, cp), 64), Texts{}) << cp;
  EXPECT_EQ(context_texts(layout(ulysses, 16), 64),
            Texts{"context_kind = ulysses: 16 ranks exchange the 8 heads and 4 kv_heads of a rank "
                  "(after tp = 1), but heads must divide by them, and kv_heads divide by them or "
                  "divide them; nearest: cp = 8, or context_kind = gather, ring, ulysses_gather or "
                  "ulysses_ring at this degree"});
  EXPECT_EQ(context_texts(layout(ulysses_gather, 16, 8, 2), 64),
            Texts{"context_kind = ulysses_gather: 8 ranks exchange the 4 heads and 2 kv_heads of a "
                  "rank (after tp = 2), but heads must divide by them, and kv_heads divide by them "
                  "or divide them; nearest: ulysses = 1, 2 or 4, or context_kind = gather, ring or "
                  "ulysses_ring at this degree"});
  EXPECT_EQ(context_texts(layout(ulysses_gather, 8, 3), 64),
            Texts{"ulysses = 3: must divide cp = 8; nearest: 1, 2, 4 or 8"});
  EXPECT_EQ(context_texts(layout(gather, 8, 2), 64),
            Texts{"ulysses = 2: with context_kind = gather no ranks exchange heads; nearest: 1, or "
                  "context_kind = ulysses_gather"});
  EXPECT_EQ(context_texts(layout(ulysses, 8, 2), 64),
            Texts{"ulysses = 2: with context_kind = ulysses it is cp = 8; nearest: 8, or "
                  "context_kind = ulysses_gather"});
}

TEST(Rules, a_ring_needs_fixed_slices) {
  for (const ContextKind kind : {ContextKind::ring, ContextKind::ulysses_ring}) {
    const Texts found =
        context_texts({.cp = 2, .context_kind = kind, .context_slices = ContextSlices::blocks}, 64);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found[0].find("nearest: zigzag, or context_kind = ulysses, gather or ulysses_gather "
                            "at this degree"),
              std::string::npos)
        << found[0];
  }
  EXPECT_EQ(context_texts({.cp = 2, .context_slices = ContextSlices::blocks}, 64), Texts{});
}

TEST(Rules, ranks_along_cp_count) {
  EXPECT_EQ(context_texts({.cp = 4}, 64, 8),
            Texts{"cp = 4: that needs 4 ranks, but there are 8; nearest: dp_replicate = 2 or "
                  "dp_shard = 2, or 4 ranks"});
  EXPECT_EQ(context_texts({.cp = 4}, 64, 6),
            Texts{"cp = 4: that needs 4 ranks, but there are 6; nearest: dp_replicate = 3 with cp "
                  "= 2 or dp_shard = 3 with cp = 2, or 4 ranks"});
}

TEST(Rules, sharded_gradients_are_summed_after_each_micro_batch) {
  const auto with_stage = [](int stage) {
    return texts({{.dp_shard = 2, .zero_stage = stage, .reduce = ReduceWhen::once},
                  {.seq_len = 1, .global_batch = 4}});
  };
  EXPECT_EQ(with_stage(2).size(), 1U);
  EXPECT_TRUE(with_stage(1).empty());
  EXPECT_EQ(texts({{.dp_shard = 2, .zero_stage = 0}}),
            Texts{"zero_stage = 0: shards nothing over dp_shard = 2; nearest: 1, or dp_replicate = "
                  "2 with dp_shard = 1"});
}

TEST(Rules, every_broken_rule_is_listed) {
  EXPECT_EQ(texts({{.tp = 3, .dp_replicate = 2, .sequence_parallel = true, .logical_dp = 3},
                   {.seq_len = 16},
                   5})
                .size(),
            4U);
}

// ---- pipelines: six blocks, with embedding and head eight layers

Texts pipeline_texts(const Layout& layout, int64_t batch = 0, int64_t ranks = 0) {
  ModelDims model = dims;
  model.layers = 6;
  return texts({layout, {.seq_len = 1, .global_batch = batch}, ranks}, model);
}

TEST(Rules, a_pipeline_needs_a_schedule_that_is_executed) {
  EXPECT_EQ(pipeline_texts({.pp = 2, .schedule = schedule::Kind::dualpipe}, 4),
            Texts{"schedule = dualpipe: its two lanes need every stage's parameters twice, which "
                  "neither planner nor engine supports; nearest: dualpipe-v, the same overlap "
                  "in one lane"});
  EXPECT_EQ(pipeline_texts({.pp = 2, .chunks = 2}),
            Texts{"chunks = 2: 1f1b has 1 per rank; nearest: 1, or schedule = interleaved, which "
                  "allows any"});
  for (const schedule::Kind kind :
       {schedule::Kind::gpipe, schedule::Kind::one_f_one_b, schedule::Kind::interleaved,
        schedule::Kind::zb_h1, schedule::Kind::zb_h2, schedule::Kind::zb_v}) {
    EXPECT_EQ(pipeline_texts({.schedule = kind}, 4), Texts{}) << schedule::name_of(kind);
    EXPECT_EQ(pipeline_texts({.pp = 2, .schedule = kind}, 4), Texts{}) << schedule::name_of(kind);
  }
}

TEST(Rules, a_pipeline_needs_enough_micro_batches_and_layers) {
  EXPECT_EQ(pipeline_texts({.pp = 2, .schedule = schedule::Kind::dualpipe_v, .micro_batch = 3}, 9),
            Texts{"global_batch = 9: a rank runs 3 micro-batches in a step: dualpipe-v on 2 ranks "
                  "needs at least 4 micro-batches, found 3: the nearest are 4 micro-batches, or 1 "
                  "ranks; nearest: global_batch = 12"});
  EXPECT_EQ(pipeline_texts({.pp = 16}),
            Texts{"pp = 16: that makes 16 stages (1 on each rank), but the model has 8 layers with "
                  "embedding and head; nearest: pp = 8"});
  EXPECT_EQ(pipeline_texts({.pp = 4, .schedule = schedule::Kind::interleaved, .chunks = 3}),
            Texts{"pp = 4: that makes 12 stages (3 on each rank), but the model has 8 layers with "
                  "embedding and head; nearest: pp = 2"});
  EXPECT_EQ(
      pipeline_texts({.pp = 2, .first_layers = {0, 3, 5}}),
      Texts{"first_layers = [0, 3, 5]: must be the first layers of the 2 stages, ascending from "
            "0 to 7 at most (0 is the embedding, 7 the head), or empty"});
  for (const std::vector<int>& cut : std::vector<std::vector<int>>{{1, 3}, {0, 0}, {0, 8}, {0}}) {
    EXPECT_EQ(pipeline_texts({.pp = 2, .first_layers = cut}).size(), 1U);
  }
  EXPECT_EQ(pipeline_texts({.pp = 2, .first_layers = {0, 7}}), Texts{});
}

TEST(Rules, degrees_of_the_pipeline_count_and_are_offered_as_the_model_allows) {
  EXPECT_EQ(pipeline_texts({.tp = 4, .pp = 2}, 0, 12),
            Texts{"tp = 4 x pp = 2: that needs 8 ranks, but there are 12; nearest: pp = 3 or "
                  "dp_replicate = 3 with pp = 1, or 8 ranks"});
  EXPECT_EQ(settle(sizes_of(dims), {.seq_len = 1}, 12, {.pp = -1, .dp_replicate = 2}).layout.pp, 6);
}

TEST(Rules, sharded_gradients_and_several_workers_need_1f1b) {
  const auto texts_of = [](schedule::Kind kind, int stage, int workers) {
    return pipeline_texts(
        {.pp = 2, .dp_shard = 2, .zero_stage = stage, .schedule = kind, .logical_dp = workers},
        4 * workers);
  };
  for (const schedule::Kind kind : {schedule::Kind::one_f_one_b, schedule::Kind::interleaved}) {
    EXPECT_EQ(texts_of(kind, 3, 2), Texts{}) << schedule::name_of(kind);
    EXPECT_EQ(texts_of(kind, 1, 4), Texts{}) << schedule::name_of(kind);
  }
  for (const schedule::Kind kind :
       {schedule::Kind::gpipe, schedule::Kind::zb_h1, schedule::Kind::zb_h2, schedule::Kind::zb_v,
        schedule::Kind::dualpipe_v}) {
    EXPECT_EQ(texts_of(kind, 1, 2), Texts{}) << schedule::name_of(kind);
    const Texts sharded = texts_of(kind, 2, 2);
    ASSERT_EQ(sharded.size(), 1U) << schedule::name_of(kind);
    EXPECT_NE(sharded[0].find("zero_stage = 2"), std::string::npos) << sharded[0];
    EXPECT_NE(sharded[0].find("1f1b, or interleaved"), std::string::npos) << sharded[0];
  }
  for (const schedule::Kind kind :
       {schedule::Kind::gpipe, schedule::Kind::zb_h1, schedule::Kind::zb_h2}) {
    EXPECT_EQ(texts_of(kind, 1, 4).size(), 1U) << schedule::name_of(kind);
  }
}

TEST(Rules, a_tied_table_on_one_rank_sums_one_leaf_at_a_time) {
  for (const schedule::Kind kind : {schedule::Kind::zb_v, schedule::Kind::dualpipe_v}) {
    for (const bool tied : {true, false}) {
      ModelDims model = dims;
      model.layers = 6;
      model.tied_head = tied;
      const Texts found = texts(
          {{.pp = 2, .schedule = kind, .logical_dp = 2}, {.seq_len = 1, .global_batch = 8}}, model);
      if (!tied) {
        EXPECT_TRUE(found.empty()) << schedule::name_of(kind) << found.front();
        continue;
      }
      ASSERT_EQ(found.size(), 1U) << schedule::name_of(kind);
      EXPECT_NE(found[0].find("table that embedding and head share"), std::string::npos)
          << found[0];
    }
  }
}

// ---- recipes

TEST(Rules, sizes_of_products_in_8_bits_have_a_grain) {
  const ModelDims model{.layers = 4,
                        .hidden = 256,
                        .heads = 4,
                        .kv_heads = 2,
                        .ffn = 640,
                        .vocab = 96,
                        .max_seq = 4096};
  const auto message = [&](Layout layout, int64_t seq_len) {
    return texts({layout, {.seq_len = seq_len}}, model);
  };
  EXPECT_EQ(message({.precision = Precision::fp8}, 48), Texts{});
  EXPECT_EQ(message({.micro_batch = 2, .precision = Precision::fp8_block}, 64), Texts{});
  EXPECT_EQ(message({.precision = Precision::bf16}, 3), Texts{});
  EXPECT_EQ(message({.micro_batch = 2, .precision = Precision::fp8}, 20),
            Texts{"precision = fp8-tensor: sizes of its products must be multiples of 16: "
                  "micro_batch = 2 x seq_len = 20 is 40 tokens on a rank (nearest: seq_len = 16 or "
                  "24, or micro_batch = 4); or use bf16"});
  EXPECT_EQ(message({.tp = 2, .precision = Precision::fp8_block}, 256),
            Texts{"precision = fp8-block: sizes of its products must be multiples of 128: ffn = "
                  "640 / tp = 2 is 320 (nearest: 512 or 768); or use fp8-tensor, whose unit is 16, "
                  "or bf16"});
  EXPECT_EQ(message({.cp = 4, .precision = Precision::fp8_block}, 256),
            Texts{"precision = fp8-block: sizes of its products must be multiples of 128: "
                  "micro_batch = 1 x seq_len = 256 / cp = 4 is 64 tokens on a rank (nearest: "
                  "seq_len = 512, or micro_batch = 2); or use fp8-tensor, whose unit is 16, or "
                  "bf16"});
}

TEST(Rules, widths_of_dims_are_those_of_the_model) {
  const ModelDims dense{
      .layers = 3, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 96, .vocab = 96, .max_seq = 32};
  ModelDims moe = dense;
  moe.dense_layers = 1;
  moe.moe = MoeSpec{.router = {.experts = 8, .chosen = 2}, .ffn = 12, .shared_ffn = 16};
  const auto names = [](const ModelSizes& sizes) {
    std::set<std::pair<std::string, int64_t>> all;
    for (const ProductWidth& width : sizes.widths) all.emplace(width.name, width.size);
    return all;
  };
  for (const ModelDims& model : {dense, moe}) {
    EXPECT_EQ(names(sizes_of(model)), names(sizes_of(make_model(model)))) << model.layers;
  }
}

TEST(Rules, recipes_name_what_they_cannot_be_combined_with) {
  EXPECT_EQ(texts({{.precision = Precision::fp4}}),
            Texts{"precision = fp4: not in the engine; nearest: fp8-block"});
  EXPECT_EQ(texts({{.precision = Precision::fp8_delayed}, {.seq_len = 16}}), Texts{});
  EXPECT_EQ(texts({{.precision = Precision::fp16, .master_dtype = base::DType::u16}}),
            Texts{"master_dtype = u16: must be f32 if precision = fp16; u16 is the low part that "
                  "bf16 weights lack"});
  EXPECT_EQ(texts({{.precision = Precision::fp16, .grad_dtype = base::DType::bf16}}),
            Texts{"grad_dtype = bf16: must be f32 if precision = fp16"});
  EXPECT_EQ(texts({{.precision = Precision::bf16, .bf16_first = -1}}), Texts{}) << "no meaning";
}

// ---- experts

TEST(Rules, experts_fit_their_ranks_or_the_nearest_degrees_are_named) {
  ModelDims moe = dims;
  moe.moe = MoeSpec{.router = {.experts = 8, .chosen = 2}, .ffn = 12};
  const auto message = [&](const Layout& layout) { return texts({layout}, moe); };
  EXPECT_EQ(message({.dp_replicate = 2, .dp_shard = 4, .ep = 8, .zero_stage = 1}), Texts{});
  EXPECT_EQ(message({.dp_shard = 3, .ep = 3, .zero_stage = 1}),
            Texts{"ep = 3: 8 experts do not divide by it; nearest: 1"});
  EXPECT_EQ(
      message({.dp_shard = 8, .ep = 2, .etp = 8, .zero_stage = 1}),
      (Texts{"etp = 8: 12 columns of an expert do not divide by it; nearest: 4",
             "ep x etp = 2 x 8: it must divide dp_shard x cp x tp = 8 ranks, or be a multiple "
             "of them that divides by dp_replicate = 1 copies; nearest: ep = 1"}));
  EXPECT_EQ(message({.dp_replicate = 3, .dp_shard = 2, .ep = 4, .zero_stage = 1}),
            Texts{"ep = 4: it must divide dp_shard x cp x tp = 2 ranks, or be a multiple of them "
                  "that divides by dp_replicate = 3 copies; nearest: ep = 2"});
  EXPECT_EQ(message({.tp = 2, .dp_shard = 2, .ep = 4, .zero_stage = 1}),
            Texts{"sequence_parallel = false: with tp = 2 ranks of a model with experts route "
                  "different tokens; nearest: sequence_parallel = true, or tp = 1"});
  EXPECT_EQ(texts({.layout = {.ep = 2}}), Texts{"ep = 2: the model has no experts; nearest: 1"});
}

}  // namespace
}  // namespace trireme::spec
