// SPDX-License-Identifier: Apache-2.0
#include "train/setup/setup.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "device/accelerator.h"

namespace trireme::train {
namespace {

std::string refusal(const config::System& system) {
  try {
    make_platform(system);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Setup, auto_takes_the_gpu_if_there_is_one) {
  const device::GpuStatus status = device::gpu_status();
  const bool has_gpu = status.problem.empty();
  const Platform platform = make_platform({.device = "auto", .threads = 2});
  EXPECT_EQ(platform.is_gpu(), has_gpu);
  EXPECT_EQ(platform.device->name(), has_gpu ? "cuda" : "cpu");
  EXPECT_EQ(platform.hardware, has_gpu ? status.gpus.at(0).name : "CPU, 2 threads");
}

// The CPU replaces a GPU that is absent, not one that lacks a library.
TEST(Setup, auto_refuses_a_gpu_that_lacks_a_library) {
  device::GpuStatus status;
  status.problem = "no NVIDIA driver is loaded";
  EXPECT_FALSE(takes_gpu({.device = "auto"}, status));
  status.problem = "there is a GPU (NVIDIA H200), but libcudnn.so.9 cannot be loaded";
  status.lacks_library = true;
  EXPECT_FALSE(takes_gpu({.device = "cpu"}, status));
  try {
    takes_gpu({.device = "auto"}, status);
    FAIL() << "took the CPU";
  } catch (const base::ConfigError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(status.problem), std::string::npos) << message;
    EXPECT_NE(message.find("--device cpu"), std::string::npos) << message;
  }
  EXPECT_TRUE(takes_gpu({.device = "auto"}, {}));
}

TEST(Setup, a_missing_gpu_is_refused_with_the_reason) {
  const std::string problem = device::gpu_status().problem;
  if (problem.empty()) GTEST_SKIP() << "this machine has a GPU";
  const std::string message = refusal({.device = "cuda"});
  EXPECT_NE(message.find(problem), std::string::npos) << message;
}

TEST(Setup, a_gpu_number_that_does_not_exist_is_refused) {
  if (!device::gpu_status().problem.empty()) GTEST_SKIP() << device::gpu_status().problem;
  EXPECT_NE(refusal({.device = "cuda", .gpu = 999}).find("999"), std::string::npos);
}

TEST(Setup, cpu_is_always_available) {
  const Platform platform = make_platform({.device = "cpu", .threads = 1});
  EXPECT_FALSE(platform.is_gpu());
  EXPECT_EQ(platform.backend, spec::cpu_backend());
  EXPECT_EQ(platform.hardware, "CPU, 1 thread");
}

TEST(Setup, dtype_follows_the_device) {
  config::Config c;
  const bool has_gpu = device::gpu_status().problem.empty();
  EXPECT_EQ(settled(c).precision.recipe, has_gpu ? "bf16" : "fp32");
  c.system.device = "cpu";
  EXPECT_EQ(settled(c).precision.recipe, "fp32");
  c.precision.recipe = "bf16";
  EXPECT_EQ(settled(c).precision.recipe, "bf16");
}

TEST(Setup, unknown_names_are_refused) {
  EXPECT_NE(refusal({.device = "tpu"}).find("device 'tpu'"), std::string::npos);
  EXPECT_NE(refusal({.determinism = "l9"}).find("determinism 'l9'"), std::string::npos);
}

TEST(Setup, the_plan_carries_documents_and_chunks) {
  config::Config c;
  c.precision.recipe = "fp32";
  c.dims = {.family = spec::Family::llama,
            .layers = 1,
            .hidden = 16,
            .heads = 2,
            .ffn = 32,
            .vocab = 256,
            .max_seq = 64};
  c.training.local_batch_size = 2;
  c.training.global_batch_size = 4;
  c.training.seq_len = 64;
  c.training.document_mask = true;
  c.training.head_chunk_rows = 32;
  c.parallelism.data_parallel_shard_degree = c.parallelism.logical_dp = 1;
  c.parallelism.zero_stage = 0;
  c.parallelism.reduce = "once";
  const spec::Plan plan = make_plan(c, spec::make_model(c.dims), spec::cpu_backend());
  EXPECT_TRUE(plan.document_mask);
  EXPECT_EQ(plan.head_chunk_rows, 32);
  EXPECT_EQ(plan.schedule.microbatches, 2);
}

}  // namespace
}  // namespace trireme::train
