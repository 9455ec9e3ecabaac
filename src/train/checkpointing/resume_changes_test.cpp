// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/resume_changes.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/text/json.h"

namespace trireme::train {
namespace {

using base::Json;

std::vector<std::string> changes(const Json& was, const Json& is) {
  std::vector<std::string> lines;
  list_changes("", was, is, lines);
  return lines;
}

TEST(ResumeChanges, every_leaf_that_differs_has_a_line) {
  const Json was = {{"a", 1}, {"b", {{"c", 2}, {"gone", true}}}};
  const Json is = {{"a", 1}, {"b", {{"c", 3}, {"added", "x"}}}};
  EXPECT_EQ(changes(was, was), std::vector<std::string>{});
  EXPECT_EQ(changes(was, is),
            (std::vector<std::string>{"b.c: was 2, is 3", "b.added: was null, is \"x\"",
                                      "b.gone: was true, is null"}));
}

// A plan with the fields that are compared.
spec::Plan identity_plan(const spec::Layout& layout) {
  spec::Plan plan;
  plan.layout = layout;
  plan.recipe = spec::recipe_of(layout);
  plan.optimizer = {layout.optimizer, layout.master_dtype};
  plan.mesh[spec::Axis::tp] = layout.tp;
  plan.mesh[spec::Axis::cp] = layout.cp;
  plan.mesh[spec::Axis::ep] = layout.ep;
  plan.mesh[spec::Axis::etp] = layout.etp;
  plan.mesh[spec::Axis::dp] = layout.dp_replicate;
  return plan;
}

std::string identity_changes(const spec::Layout& was, const spec::Layout& is) {
  return changes_of_identity(identity_plan(was), identity_plan(is));
}

TEST(ResumeChanges, of_the_plan_only_settings_that_decide_bits_are_compared) {
  const spec::Layout was{.tp = 2, .dp_replicate = 4, .logical_dp = 4};
  spec::Layout is = was;
  is.dp_replicate = 2;
  is.prefetch = 2;
  is.micro_batch = 2;
  is.recompute = spec::Recompute::full;
  EXPECT_EQ(identity_changes(was, is), "");
  is.tp = 1;
  is.logical_dp = 8;
  is.grad_dtype = base::DType::bf16;
  EXPECT_EQ(identity_changes(was, is),
            "logical_dp was 4, is 8; recipe.grad was \"f32\", is \"bf16\"; tp was 2, is 1");
  is.precision = spec::Precision::fp32;
  EXPECT_EQ(identity_changes(was, is),
            "logical_dp was 4, is 8; recipe was \"bf16\", is \"fp32\"; tp was 2, is 1");
}

TEST(ResumeChanges, every_setting_that_decides_bits_is_compared) {
  using Change = std::function<void(spec::Layout&)>;
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](spec::Layout& l) { l.reduce = spec::ReduceWhen::each; },
       "reduce was \"once\", is \"each\""},
      {[](spec::Layout& l) { l.reduce_dtype = base::DType::bf16; },
       "reduce_dtype was \"f32\", is \"bf16\""},
      {[](spec::Layout& l) { l.bf16_first = 1; }, "bf16_first was 0, is 1"},
      {[](spec::Layout& l) { l.bf16_last = 1; }, "bf16_last was 0, is 1"},
      {[](spec::Layout& l) { l.optimizer = spec::OptimizerKind::muon; },
       "optimizer was \"adamw\", is \"muon\""},
      {[](spec::Layout& l) { l.master_dtype = base::DType::u16; },
       "optimizer.master was \"f32\", is \"u16\""},
      {[](spec::Layout& l) { l.sequence_parallel = true; }, "sequence_parallel was false, is true"},
      {[](spec::Layout& l) { l.ffn_rows = 128; }, "ffn_rows was 0, is 128"},
      {[](spec::Layout& l) { l.ep = 2; }, "ep was 1, is 2"},
      {[](spec::Layout& l) { l.etp = 2; }, "etp was 1, is 2"},
      {[](spec::Layout& l) { l.cp = 4; }, "cp was 2, is 4"},
      {[](spec::Layout& l) { l.context_kind = spec::ContextKind::ring; },
       "context_kind was \"gather\", is \"ring\""},
      {[](spec::Layout& l) { l.ulysses = 2; }, "ulysses was 1, is 2"}};
  for (const auto& [change, text] : cases) {
    const spec::Layout was{.cp = 2, .ulysses = 1, .reduce = spec::ReduceWhen::once};
    spec::Layout is = was;
    change(is);
    EXPECT_EQ(identity_changes(was, is), text);
  }
}

TEST(ResumeChanges, with_experts_on_several_ranks_the_data_ranks_decide_bits) {
  spec::Layout was{.dp_replicate = 4}, is{.dp_replicate = 2};
  EXPECT_EQ(identity_changes(was, is), "");
  was.ep = is.ep = 2;
  EXPECT_EQ(identity_changes(was, is), "data_ranks was 4, is 2");
}

TEST(ResumeChanges, keys_that_an_older_build_did_not_have_count_if_they_are_not_at_their_default) {
  const Json defaults = {{"optimizer", {{"lr", 1}, {"momentum", 0.95}}}, {"new", {{"a", 1}}}};
  const Json was = {{"optimizer", {{"lr", 2}}}};
  Json is = defaults;
  EXPECT_EQ(without_added_keys(was, is, defaults), (Json{{"optimizer", {{"lr", 1}}}}));
  is["optimizer"]["momentum"] = 0.9;
  is["new"]["a"] = 2;
  EXPECT_EQ(without_added_keys(was, is, defaults), is);
}

TEST(ResumeChanges, another_spelling_of_a_schedule_is_no_change) {
  const auto state = [](const char* schedule) {
    return Json{
        {"samples_a_step", 4},
        {"data", {{"seed", 0}}},
        {"config",
         {{"job", {{"name", "a"}}}, {"parallelism", {{"pipeline_parallel_schedule", schedule}}}}}};
  };
  EXPECT_TRUE(changes_of_state(state("1f1b"), state("1F1B")).config.empty());
  EXPECT_EQ(changes_of_state(state("1f1b"), state("gpipe")).config.size(), 1U);
}

TEST(ResumeChanges, data_batch_and_configuration_are_distinguished) {
  const Json saved = {{"samples_a_step", 4},
                      {"data", {{"seed", 0}}},
                      {"config", {{"job", {{"name", "a"}}}, {"optimizer", {{"lr", 0.5}}}}}};
  Json own = saved;
  own["samples_a_step"] = 8;
  own["data"]["seed"] = 1;
  own["config"]["optimizer"]["lr"] = 0.25;
  using Lines = std::vector<std::string>;
  const StateChanges changes = changes_of_state(saved, own);
  EXPECT_EQ(changes.data, Lines{"data.seed: was 0, is 1"});
  EXPECT_EQ(changes.batch, Lines{"samples_a_step: was 4, is 8"});
  EXPECT_EQ(changes.config, Lines{"optimizer.lr: was 0.5, is 0.25"});
  EXPECT_TRUE(changes.has_config);
}

TEST(ResumeChanges, states_of_older_builds_are_compared_by_what_they_record) {
  const Json saved = {{"samples_a_step", 4}, {"seed", 0}, {"seq_len", 8}};
  const Json own = {{"samples_a_step", 4},
                    {"seed", 0},
                    {"seq_len", 16},
                    {"data", {{"seed", 0}}},
                    {"config", Json::object()}};
  const StateChanges changes = changes_of_state(saved, own);
  EXPECT_EQ(changes.data, std::vector<std::string>{"seq_len: was 8, is 16"});
  EXPECT_TRUE(changes.batch.empty());
  EXPECT_FALSE(changes.has_config);
}

}  // namespace
}  // namespace trireme::train
