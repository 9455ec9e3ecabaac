// SPDX-License-Identifier: Apache-2.0
#include "config/job_layout.h"

#include "config/files_test.h"

namespace trireme::config {
namespace {

LoadOptions with(std::vector<std::string> overrides, int world) {
  overrides.emplace_back("model.name=llama-15m");
  return {.overrides = std::move(overrides), .model_folders = {shipped_models()}, .world = world};
}

TEST(JobLayoutConfig, the_rest_of_the_world_is_sharded) {
  const auto four = [](std::vector<std::string> overrides) {
    return load("", with(std::move(overrides), 4));
  };
  const Config fsdp = four({});
  EXPECT_EQ(fsdp.parallelism.data_parallel_shard_degree, 4);
  EXPECT_EQ(fsdp.parallelism.zero_stage, 3);
  EXPECT_EQ(fsdp.parallelism.logical_dp, 4);
  EXPECT_EQ(fsdp.parallelism.reduce, "once");
  EXPECT_EQ(fsdp.training.global_batch_size, 32);
  EXPECT_EQ(four({"training.global_batch_size=64"}).parallelism.reduce, "each");
  const Config hybrid = four({"parallelism.tensor_parallel_degree=2", "parallelism.zero_stage=1",
                              "parallelism.logical_dp=6"});
  EXPECT_EQ(hybrid.parallelism.data_parallel_shard_degree, 2);
  EXPECT_EQ(hybrid.training.global_batch_size, 48);
  const Config replicas = four({"parallelism.data_parallel_replicate_degree=-1"});
  EXPECT_EQ(replicas.parallelism.data_parallel_replicate_degree, 4);
  EXPECT_EQ(replicas.parallelism.data_parallel_shard_degree, 1);
  EXPECT_EQ(replicas.parallelism.zero_stage, 0);
  // What is resolved stays as it is.
  const TemporaryFolder folder;
  const LoadOptions again{.overrides = {}, .model_folders = {shipped_models()}, .world = 4};
  EXPECT_TRUE(load(folder.write("run.json", to_json(hybrid).dump()), again) == hybrid);
}

TEST(JobLayoutConfig, refusal_of_degrees_comes_all_at_once) {
  const LoadOptions options = with(
      {"parallelism.tensor_parallel_degree=3", "parallelism.data_parallel_replicate_degree=2",
       "parallelism.sequence_parallel=true", "training.seq_len=10", "training.local_batch_size=1",
       "parallelism.logical_dp=5", "parallelism.context_parallel_degree=2"},
      12);
  const std::string message = message_of([&] { (void)load("", options); });
  for (const char* part :
       {"4 problems", "context_parallel_degree = 2", "kv_heads = 2 and ffn = 1024 do not divide",
        "nearest: 2\n", "training.seq_len = 10", "nearest: 9 or 12",
        "logical_dp = 5: must be a multiple of the 4 data ranks; nearest: 4 or 8"}) {
    expect_contains(message, part);
  }
}

}  // namespace
}  // namespace trireme::config
