// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/resume_point.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text/json.h"

namespace trireme::train {
namespace {

using base::Json;

ResumePoint point_of(const spec::Layout& layout, const Json& state) {
  const spec::ModelSpec model = spec::make_model({.name = "tiny",
                                                  .family = spec::Family::llama,
                                                  .layers = 2,
                                                  .hidden = 16,
                                                  .heads = 2,
                                                  .kv_heads = 2,
                                                  .ffn = 32,
                                                  .vocab = 64,
                                                  .max_seq = 16});
  const spec::Plan plan =
      spec::solve_or_throw(model, {.seq_len = 16, .global_batch = 8}, layout, spec::cpu_backend());
  return {.folder = "run/checkpoint/step-00000007",
          .manifest = {.step = 7, .state = state, .plan = spec::to_json(plan)}};
}

std::string message_of_sums(const ResumePoint& point) {
  try {
    (void)saved_sums(point);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ResumePointTest, sums_are_those_of_the_saved_plan) {
  spec::Layout layout{.dp_replicate = 2, .logical_dp = 4, .reduce = spec::ReduceWhen::each};
  // The step belongs to a phase with another batch than the run began with.
  const Json state = {{"samples_a_step", 8},
                      {"config", {{"training", {{"global_batch_size", 16}}}}}};
  const auto sums = saved_sums(point_of(layout, state));
  ASSERT_TRUE(sums);
  EXPECT_EQ(sums->logical_dp, 4);
  EXPECT_EQ(sums->reduce, spec::ReduceWhen::each);
  EXPECT_EQ(sums->global_batch_size, 16);
  EXPECT_EQ(saved_sums(point_of(layout, {{"samples_a_step", 8}}))->global_batch_size, 8);
  ResumePoint imported = point_of(layout, state);
  imported.manifest.step = 0;
  EXPECT_FALSE(saved_sums(imported));
}

TEST(ResumePointTest, a_manifest_that_cannot_be_read_is_an_error) {
  ResumePoint point = point_of({}, {{"samples_a_step", 8}});
  point.manifest.plan.at("layout").erase("logical_dp");
  EXPECT_NE(message_of_sums(point).find("run/checkpoint/step-00000007: the plan in its manifest "
                                        "cannot be read: plan.layout"),
            std::string::npos)
      << message_of_sums(point);
  point = point_of({}, {{"samples_a_step", "many"}});
  EXPECT_NE(message_of_sums(point).find("the global batch in its manifest cannot be read"),
            std::string::npos)
      << message_of_sums(point);
}

}  // namespace
}  // namespace trireme::train
