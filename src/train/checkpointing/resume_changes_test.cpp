// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/resume_changes.h"

#include <gtest/gtest.h>

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

TEST(ResumeChanges, of_the_plan_only_keys_that_decide_bits_are_compared) {
  const Json plan = {{"mesh", {{"tp", 2}, {"dp", 4}}},
                     {"recipe", {{"name", "bf16"}, {"grad", "f32"}}},
                     {"layout", {{"logical_dp", 4}, {"prefetch", 1}}}};
  Json other = plan;
  other["mesh"]["dp"] = 2;
  other["layout"]["prefetch"] = 2;
  EXPECT_EQ(changes_of_identity(plan, other), "");
  other["mesh"]["tp"] = 1;
  other["layout"]["logical_dp"] = 8;
  other["recipe"]["grad"] = "bf16";
  EXPECT_EQ(changes_of_identity(plan, other),
            "logical_dp was 4, is 8; recipe.grad was \"f32\", is \"bf16\"; tp was 2, is 1");
  other["recipe"] = {{"name", "fp32"}, {"grad", "f32"}};
  EXPECT_EQ(changes_of_identity(plan, other),
            "logical_dp was 4, is 8; recipe was \"bf16\", is \"fp32\"; tp was 2, is 1");
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

// A layout and a plan both name the optimizer.
TEST(ResumeChanges, an_older_plan_has_the_optimizer_outside_of_its_layout) {
  const Json older = {{"layout", {{"logical_dp", 4}}}, {"optimizer", {{"name", "adamw"}}}};
  Json newer = older;
  newer["layout"]["optimizer"] = "adamw";
  EXPECT_EQ(changes_of_identity(older, newer), "");
  newer["optimizer"]["name"] = "muon";
  EXPECT_EQ(changes_of_identity(older, newer), "optimizer was \"adamw\", is \"muon\"");
}

TEST(ResumeChanges, tiles_of_the_feed_forward_decide_bits) {
  const Json older = {{"layout", {{"logical_dp", 4}}}};
  Json newer = {{"layout", {{"logical_dp", 4}, {"ffn_rows", 0}}}};
  EXPECT_EQ(changes_of_identity(older, newer), "");
  newer["layout"]["ffn_rows"] = 128;
  EXPECT_EQ(changes_of_identity(older, newer), "ffn_rows was 0, is 128");
}

TEST(ResumeChanges, plans_without_a_layout_are_compared_by_their_own_keys) {
  const Json older = {{"logical_dp", 4}, {"mesh", {{"tp", 1}}}};
  const Json newer = {{"layout", {{"logical_dp", 4}}}, {"mesh", {{"tp", 1}}}};
  EXPECT_EQ(changes_of_identity(older, newer), "");
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
