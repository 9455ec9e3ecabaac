// SPDX-License-Identifier: Apache-2.0
#include "train/setup/asked_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text/json.h"
#include "config/files_test.h"
#include "train/setup/setup.h"

namespace trireme::train {
namespace {

using Overrides = std::vector<std::string>;

config::Config asked_of(const Overrides& overrides, int world = 0) {
  Overrides all = {"model.name=llama-15m", "system.device=cpu", "lr_scheduler.warmup_steps=5000"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return config::load(
      "", {.overrides = all, .model_folders = {config::shipped_models()}, .world = world});
}

spec::Plan plan_of(const config::Config& solved) {
  const config::Config c = settled(solved);
  return make_plan(c, spec::make_model(c.dims), spec::cpu_backend());
}

// The checkpoint of step 7 of a run.
ResumePoint saved_by(const config::Config& run) {
  return {.folder = "run/checkpoint/step-00000007",
          .manifest = {.step = 7,
                       .state = {{"config", config::to_json(run)}},
                       .plan = spec::to_json(plan_of(run))}};
}

const std::vector<Overrides>& open_calls() {
  static const std::vector<Overrides> calls = {
      {},
      {"parallelism.data_parallel_replicate_degree=-1"},
      {"parallelism.zero_stage=1", "training.global_batch_size=64"},
      {"parallelism.logical_dp=8"},
      {"parallelism.pipeline_parallel_degree=-1", "training.global_batch_size=64"},
  };
  return calls;
}

TEST(AskedPlan, one_configuration_is_solved_for_any_world_as_by_a_new_start) {
  for (const Overrides& overrides : open_calls()) {
    const config::Config asked = asked_of(overrides);
    const std::string before = config::to_json(asked).dump();
    for (const int world : {1, 2, 4, 8, 2, 1}) {
      const config::Config solved = plan_for(asked, world, {});
      const config::Config fresh = plan_for(asked_of(overrides, world), world, {});
      EXPECT_EQ(config::to_json(solved).dump(1), config::to_json(fresh).dump(1)) << world;
      EXPECT_EQ(solved.notes, fresh.notes);
      EXPECT_EQ(plan_of(solved), plan_of(fresh)) << world;
      EXPECT_EQ(plan_of(solved).layout.ranks(), world);
    }
    EXPECT_EQ(config::to_json(asked).dump(), before);
  }
}

TEST(AskedPlan, a_solved_configuration_does_not_change) {
  const config::Config solved = plan_for(asked_of({}), 4, {});
  EXPECT_EQ(solved.notes.size(), 1U);
  const config::Config again = plan_for(solved, 4, saved_by(plan_for(asked_of({}), 2, {})));
  EXPECT_TRUE(again == solved);
  EXPECT_EQ(again.notes, solved.notes);
}

// A run of four ranks continues on two, on one and on four, and another one starts between them.
TEST(AskedPlan, open_keys_take_the_values_of_a_checkpoint_for_any_world) {
  const config::Config asked =
      asked_of({"parallelism.zero_stage=1", "training.local_batch_size=2"});
  const config::Config run = plan_for(asked, 4, {});
  const ResumePoint saved = saved_by(run);
  for (const int world : {2, 1, 4}) {
    const config::Config resumed = plan_for(asked, world, saved);
    EXPECT_EQ(resumed.parallelism.logical_dp, 4) << world;
    EXPECT_EQ(resumed.training.global_batch_size, 8) << world;
    EXPECT_EQ(resumed.parallelism.reduce, run.parallelism.reduce) << world;
    EXPECT_EQ(resumed.parallelism.data_parallel_shard_degree, world);
    const config::Config started = plan_for(asked, world, {});
    EXPECT_EQ(started.parallelism.logical_dp, world);
    EXPECT_EQ(started.training.global_batch_size, 2 * world);
  }
  // What is given is kept.
  const config::Config given = asked_of({"parallelism.logical_dp=2"});
  EXPECT_EQ(plan_for(given, 1, saved).parallelism.logical_dp, 2);
}

TEST(AskedPlan, an_imported_checkpoint_gives_no_values) {
  const config::Config asked = asked_of({});
  ResumePoint imported = saved_by(plan_for(asked, 4, {}));
  imported.manifest.step = 0;
  imported.manifest.state = {{"imported", "weights"}};
  EXPECT_TRUE(plan_for(asked, 2, imported) == plan_for(asked, 2, {}));
}

// Problems of a number of ranks name file, line and key as if they had been found when loading.
TEST(AskedPlan, a_world_is_refused_with_the_words_of_a_new_start) {
  const std::vector<std::string> texts = {
      "[parallelism]\ndata_parallel_shard_degree = 2\ntensor_parallel_degree = 2\n",
      "[parallelism]\nlogical_dp = 3\n[training]\nlocal_batch_size = 1\n",
      "[training]\nglobal_batch_size = 24\n\n[parallelism]\npipeline_parallel_degree = 3\n"};
  const config::TemporaryFolder folder;
  for (const std::string& text : texts) {
    const auto file = folder.write("run.toml", "[model]\nname = \"llama-15m\"\n" + text);
    const config::LoadOptions any{.model_folders = {config::shipped_models()}};
    config::LoadOptions eight = any;
    eight.world = 8;
    const config::Config asked = config::load(file, any);
    const std::string message = config::message_of([&] { (void)config::load(file, eight); });
    config::expect_contains(message, "run.toml:");
    EXPECT_EQ(config::message_of([&] { (void)plan_for(asked, 8, {}); }), message);
    EXPECT_EQ(config::message_of([&] { (void)plan_for(asked, 0, {}); }), "");
  }
}

TEST(AskedPlan, a_checkpoint_that_cannot_be_read_is_refused) {
  const config::Config asked = asked_of({});
  ResumePoint saved = saved_by(plan_for(asked, 1, {}));
  saved.manifest.plan.erase("layout");
  config::expect_contains(config::message_of([&] { (void)plan_for(asked, 1, saved); }),
                          "step-00000007: the plan in its manifest cannot be read");
}

}  // namespace
}  // namespace trireme::train
