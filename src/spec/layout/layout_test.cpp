// SPDX-License-Identifier: Apache-2.0
#include "spec/layout/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text/json.h"
#include "spec/layout/layout_samples_test.h"
#include "spec/layout/layout_text.h"
#include "spec/plan.h"

namespace trireme::spec {
namespace {

ModelSpec layout_model(bool tied) {
  return make_model({.name = "model",
                     .family = tied ? Family::gpt2 : Family::llama,
                     .layers = 6,
                     .hidden = 64,
                     .heads = 8,
                     .ffn = 128,
                     .vocab = 96,
                     .max_seq = 48,
                     .tied_head = tied});
}

TEST(Layout, any_layout_survives_json_text_and_plan) {
  LayoutDice dice(21);
  for (int i = 0; i < 600; ++i) {
    const ModelSpec model = layout_model(dice.either());
    const Workload work{.seq_len = 48, .document_mask = dice.either()};
    const Layout l = any_layout(dice, sizes_of(model), work.seq_len);
    SCOPED_TRACE(to_text(l));
    EXPECT_EQ(layout_from_json(base::Json::parse(to_json(l).dump()), "layout"), l);
    const Layout read = layout_from_text(to_text(l), l.ranks());
    EXPECT_EQ(read, opened(l));
    Workload same = work;
    same.global_batch = l.global_batch();
    EXPECT_EQ(settle(sizes_of(model), same, l.ranks(), read).layout, l);
    const Plan plan = solve_or_throw(model, work, l, {});
    EXPECT_EQ(plan.layout, l);
    EXPECT_NO_THROW(check_plan(model, plan));
    EXPECT_EQ(plan_from_json(base::Json::parse(to_json(plan).dump())), plan);
  }
}

TEST(Layout, any_recipe_survives_json_text_and_plan) {
  LayoutDice dice(23);
  int count = 0;
  while (count < 150) {
    const ModelSpec model = layout_model(dice.either());
    Layout open = any_open_layout(dice);
    open.precision = dice.of<Precision>({Precision::fp8, Precision::fp8_block, Precision::fp16});
    open.optimizer = OptimizerKind::adamw;
    open.ffn_rows = 0;
    open.bf16_first = dice.of<int>({0, 0, 2});
    open.bf16_last = dice.of<int>({0, 1});
    if (dice.either()) open.bf16_blocks = {1, 4};
    const Workload work{.seq_len = 48};
    const Settled settled = settle(sizes_of(model), work, 0, open);
    if (!settled.broken.empty()) continue;
    ++count;
    const Layout& l = settled.layout;
    SCOPED_TRACE(to_text(l));
    EXPECT_EQ(layout_from_json(base::Json::parse(to_json(l).dump()), "layout"), l);
    EXPECT_EQ(layout_from_text(to_text(l), l.ranks()), opened(l));
    const Plan plan = solve_or_throw(model, work, l, {});
    EXPECT_NO_THROW(check_plan(model, plan));
    EXPECT_EQ(plan_from_json(base::Json::parse(to_json(plan).dump())), plan);
  }
}

TEST(Layout, a_custom_schedule_and_a_cut_survive_json_and_plan) {
  const ModelSpec model = layout_model(false);
  Layout asked{.pp = 2, .first_layers = {0, 3}, .accumulation = 2};
  asked.custom_schedule = schedule::from_text("0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n").value();
  const Plan plan = solve_or_throw(model, {.seq_len = 32}, asked, {});
  EXPECT_EQ(plan.layout.first_layers, asked.first_layers);
  EXPECT_EQ(plan.layout.custom_schedule, asked.custom_schedule);
  EXPECT_EQ(plan_from_json(base::Json::parse(to_json(plan).dump())), plan);
}

TEST(Layout, json_with_a_wrong_key_is_refused_by_name) {
  const auto message = [](const base::Json& json) {
    try {
      (void)layout_from_json(json, "plan.layout");
    } catch (const base::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  base::Json json = to_json(Layout{});
  json["schedule"] = "2f2b";
  EXPECT_NE(message(json).find("plan.layout: schedule = '2f2b': allowed are gpipe, 1f1b"),
            std::string::npos);
  json = to_json(Layout{});
  json.erase("prefetch");
  EXPECT_NE(message(json).find("plan.layout: no key 'prefetch'"), std::string::npos);
  json = to_json(Layout{});
  json["colour"] = 1;
  EXPECT_NE(message(json).find("unknown key 'colour'"), std::string::npos);
}

TEST(Layout, json_without_keys_of_context_parallelism_is_read) {
  Layout l;
  l.cp = 4;
  l.ulysses = 1;
  base::Json json = to_json(l);
  for (const char* key : {"context_kind", "context_slices", "ulysses"}) json.erase(key);
  EXPECT_EQ(layout_from_json(json, "layout"), l);
  l.context_kind = ContextKind::ulysses_ring;
  l.context_slices = ContextSlices::contiguous;
  l.ulysses = 2;
  EXPECT_EQ(layout_from_json(to_json(l), "layout"), l);
  for (size_t i = 0; i < static_cast<size_t>(ContextKind::count); ++i) {
    const auto kind = static_cast<ContextKind>(i);
    EXPECT_EQ(context_kind_from_name(name_of(kind)), kind);
    EXPECT_NE(has_gather(kind), has_ring(kind) || kind == ContextKind::ulysses);
  }
}

TEST(Layout, an_open_ulysses_degree_divides_cp_and_the_kv_heads_of_a_rank) {
  const auto degree = [](ContextKind kind, int cp, int tp, std::vector<int64_t> kv_heads) {
    Layout l;
    l.cp = cp;
    l.tp = tp;
    l.context_kind = kind;
    return open_ulysses(l, kv_heads);
  };
  using enum ContextKind;
  EXPECT_EQ(degree(ulysses, 8, 1, {8}), 8);
  EXPECT_EQ(degree(gather, 8, 1, {8}), 1);
  EXPECT_EQ(degree(ring, 8, 1, {}), 1);
  EXPECT_EQ(degree(ulysses_gather, 8, 1, {8}), 4) << "below cp";
  EXPECT_EQ(degree(ulysses_gather, 8, 4, {8}), 2);
  EXPECT_EQ(degree(ulysses_ring, 16, 8, {8}), 1) << "one kv head on a rank";
  EXPECT_EQ(degree(ulysses_ring, 12, 1, {9}), 3);
  EXPECT_EQ(degree(ulysses_ring, 12, 1, {8, 6}), 2);
  EXPECT_EQ(degree(ulysses_gather, 2, 1, {8}), 2) << "no divisor below cp but 1";
  EXPECT_EQ(degree(ulysses_gather, 2, 1, {}), 0) << "unknown model";
  EXPECT_EQ(degree(ulysses_gather, 1, 1, {8}), 1);
}

// Checkpoints of the first version contain such plans.
TEST(Layout, plans_of_the_first_version_are_read) {
  const ModelSpec model = layout_model(true);
  LayoutDice dice(22);
  for (int i = 0; i < 200; ++i) {
    Layout asked = any_layout(dice, sizes_of(model), 32);
    if (asked.cp > 1) continue;  // it had no context parallelism
    asked.deterministic = true;
    const Plan plan = solve_or_throw(model, {.seq_len = 32}, asked, {});
    const Layout& l = plan.layout;
    base::Json json = to_json(plan);
    json.erase("layout");
    json["sequence_parallel"] = l.sequence_parallel;
    json["send_buffers"] = l.send_buffers;
    json["microbatch_sequences"] = l.micro_batch;
    json["logical_dp"] = l.logical_dp;
    json["reduce"] = std::string(name_of(l.reduce));
    json["reduce_dtype"] = std::string(base::name_of(l.reduce_dtype));
    json["keep_params"] = l.keeps_params();
    json["prefetch"] = l.prefetch;
    json["prefetch_after"] = l.prefetch_after;
    json["context"] = "none";
    json["bucket_bytes"] = 0;
    json["expert_capacity"] = 0;
    json["optimizer_place"] = "device";
    json["stash_place"] = "device";
    Plan read = plan_from_json(json);
    EXPECT_NO_THROW(check_plan(model, read)) << to_text(l);
    // A cut and a chunk of logits that were derived are explicit ones now.
    EXPECT_EQ(read.first_layer_of_stage, plan.first_layer_of_stage);
    // With few micro-batches several schedules have the same actions.
    EXPECT_EQ(read.schedule, plan.schedule);
    EXPECT_FALSE(read.layout.custom_schedule);
    read.layout.schedule = l.schedule;
    read.layout.first_layers = l.first_layers;
    read.layout.head_chunk_rows = l.head_chunk_rows;
    read.layout.ffn_rows = l.ffn_rows;  // later than the first version
    // A policy for no blocks is read as no policy.
    if (l.recompute_blocks == 0) {
      read.layout.recompute = l.recompute;
      read.layout.recompute_blocks = 0;
    }
    EXPECT_EQ(read.layout, l) << to_text(l);
    json["stash_place"] = "host";
    EXPECT_THROW((void)plan_from_json(json), base::ConfigError);
  }
}

// Keys that plans no longer have: their one value is ignored, another one is refused.
TEST(Layout, reserved_keys_of_earlier_plans_are_ignored_at_their_only_value) {
  const Plan plan = solve_or_throw(layout_model(true), {.seq_len = 32}, {}, {});
  base::Json json = to_json(plan);
  const base::Json operand = {
      {"dtype", "bf16"}, {"block_rows", 0}, {"block_cols", 0}, {"scaling", "none"}};
  json["recipe"]["gemm"] = base::Json(6, operand);
  json["recipe"]["amax_history"] = 0;
  json["optimizer"]["first_moment"] = json["optimizer"]["second_moment"] = "f32";
  EXPECT_EQ(plan_from_json(json), plan);
  const auto refused = [&](const char* section, const char* key, const base::Json& value) {
    base::Json other = json;
    other[section][key] = value;
    try {
      (void)plan_from_json(other);
    } catch (const base::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused("recipe", "amax_history", 16),
            "plan.recipe: amax_history = 16: this version supports 0 only");
  EXPECT_NE(refused("recipe", "gemm", base::Json(6, {{"dtype", "f32"}})).find("recipe: gemm ="),
            std::string::npos);
  EXPECT_EQ(refused("optimizer", "first_moment", "bf16"),
            "plan.optimizer: first_moment = \"bf16\": this version supports \"f32\" only");
}

}  // namespace
}  // namespace trireme::spec
