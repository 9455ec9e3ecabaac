// SPDX-License-Identifier: Apache-2.0
#include "train/setup/fit.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::train {
namespace {

spec::ModelSpec fitted_model() {
  return spec::make_model({.name = "m",
                           .family = spec::Family::llama,
                           .layers = 8,
                           .hidden = 1024,
                           .heads = 16,
                           .kv_heads = 4,
                           .ffn = 4096,
                           .vocab = 32000,
                           .max_seq = 2048});
}

FitJob job_of(int64_t sequences, int accumulate = 1, spec::Layout layout = {}) {
  static const spec::ModelSpec the_model = fitted_model();
  static const spec::Backend backend = spec::cuda_backend(true);
  layout.micro_batch = sequences;
  layout.accumulation = accumulate;
  return make_fit_job(the_model, backend, {.seq_len = 2048}, layout);
}

int64_t total(const spec::Plan& plan) { return plan.predicted.largest().total(); }
int64_t total(const FitJob& job) { return total(job.plan); }

std::string refusal(const FitJob& job, int64_t available, int64_t external) {
  try {
    check_fits(job, available, external);
  } catch (const base::OutOfMemory& error) {
    return error.what();
  }
  return "";
}

TEST(Fit, accepts_a_plan_that_fits_to_the_byte) {
  const FitJob job = job_of(8);
  EXPECT_EQ(refusal(job, total(job) + 1000, 1000), "");
  EXPECT_NE(refusal(job, total(job) + 999, 1000), "");
}

// Returns a CPU platform whose host has `available` bytes left.
Platform cpu_with(int64_t available) {
  Platform platform;
  platform.device =
      std::make_unique<device::CpuDevice>(kernels::cpu_kernels(), device::CpuDevice::Options{});
  platform.backend = spec::cpu_backend();
  platform.host_available_bytes = available;
  return platform;
}

std::string host_refusal(const FitJob& job, int64_t available, int sharers, int64_t checkpoints,
                         int64_t rebuild = 0) {
  Platform platform = cpu_with(available);
  try {
    check_fits(job, platform, sharers, train_fit_keys(),
               {.checkpoint_bytes = checkpoints, .rebuild_bytes = rebuild});
  } catch (const base::OutOfMemory& error) {
    return error.what();
  }
  return "";
}

TEST(Fit, on_a_cpu_all_ranks_and_their_checkpoints_must_fit_the_host) {
  const FitJob alone = job_of(2);
  EXPECT_EQ(host_refusal(alone, total(alone) + 7, 1, 7), "");
  EXPECT_NE(host_refusal(alone, total(alone) + 6, 1, 7), "");
  // Four ranks of which two are on this host: twice the largest.
  const FitJob spread = job_of(2, 1, {.dp_replicate = 4});
  EXPECT_EQ(host_refusal(spread, 2 * total(spread) + 14, 2, 7), "");
  EXPECT_NE(host_refusal(spread, 2 * total(spread) + 13, 2, 7), "");
  // All stages of a pipeline: their sum, not a multiple of the largest.
  const FitJob pipeline = job_of(2, 2, {.pp = 2});
  int64_t sum = 0;
  for (const spec::MemoryTable& stage : pipeline.plan.predicted.memory) sum += stage.total();
  ASSERT_LT(sum, 2 * total(pipeline));
  EXPECT_EQ(host_refusal(pipeline, sum, 2, 0), "");
  EXPECT_NE(host_refusal(pipeline, sum - 1, 2, 0), "");
}

TEST(Fit, a_refusal_of_the_host_has_the_table_and_advice) {
  const FitJob job = job_of(8, 1, {.dp_replicate = 2});
  const std::string message = host_refusal(job, total(job), 2, 1 << 30);
  for (const char* part : {"does not fit", "parameters", "checkpoint buffers",
                           "other ranks on this host", "needed", "available", "missing"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
  EXPECT_NE(host_refusal(job, 1 << 20, 2, 0).find("a machine with more memory"), std::string::npos);
}

TEST(Fit, a_refusal_has_the_table_and_advice) {
  const FitJob job = job_of(8);
  const std::string message = refusal(job, total(job) * 3 / 4, 1 << 20);
  for (const char* part :
       {"does not fit", "parameters", "gradients", "optimizer", "scratch", "batch", "libraries",
        "needed", "available", "missing", "the cheapest first", "more time",
        "--activation_checkpoint.mode=", "--training.local_batch_size="}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
}

TEST(Fit, options_fit_keep_the_global_batch_and_come_by_cost) {
  const FitJob job = job_of(6, 2);
  for (const int percent : {95, 80, 60, 50}) {
    const int64_t bytes = total(job) / 100 * percent;
    const auto options = options_within(job, bytes, train_fit_keys());
    ASSERT_FALSE(options.empty()) << percent;
    double cost = -1;
    for (const FitOption& option : options) {
      EXPECT_LE(total(option.plan), bytes) << option.how;
      EXPECT_EQ(option.plan.layout.micro_batch * option.plan.schedule.microbatches, 12);
      EXPECT_GE(option.relative_cost, cost) << option.how;
      EXPECT_FALSE(option.how.empty());
      cost = option.relative_cost;
    }
  }
}

TEST(Fit, no_option_contains_a_smaller_one) {
  const FitJob job = job_of(8);
  const auto options = options_within(job, total(job) - 1, train_fit_keys());
  // Each change alone saves a byte.
  for (const FitOption& option : options) {
    EXPECT_EQ(option.how.find(" --activation"), std::string::npos) << option.how;
    EXPECT_EQ(option.how.find("bf16 "), std::string::npos) << option.how;
  }
}

TEST(Fit, full_recompute_costs_more_time_than_selective) {
  const FitJob job = job_of(8);
  double selective = 0, full = 0;
  for (const int percent : {99, 60}) {
    for (const FitOption& o : options_within(job, total(job) / 100 * percent, train_fit_keys())) {
      if (o.how == "--activation_checkpoint.mode=selective") selective = o.relative_cost;
      if (o.how == "--activation_checkpoint.mode=full") full = o.relative_cost;
    }
  }
  EXPECT_GT(selective, 0);
  EXPECT_GT(full, selective);
  // Less than a forward relative to a forward and two backwards: the head is not recomputed.
  EXPECT_GT(full, 0.1);
  EXPECT_LT(full, 1.0 / 3);
}

TEST(Fit, names_the_smallest_need_if_no_change_fits) {
  const std::string message = refusal(job_of(8), 1 << 20, 0);
  for (const char* part : {"no change", "--activation_checkpoint.mode=full", "bf16",
                           "--training.local_batch_size=1", "smaller model"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
}

TEST(Fit, offers_only_settings_that_can_be_changed) {
  const FitJob job = job_of(8);
  const auto options = options_within(job, total(job) / 2, {.micro_batch = "--batch "});
  ASSERT_EQ(options.size(), 1U);
  EXPECT_TRUE(options.front().how.starts_with("--batch ")) << options.front().how;
}

// In a job of several ranks the largest must fit, and every option keeps the split.
void expect_split_is_kept(const FitJob& job) {
  for (const int percent : {90, 70}) {
    const int64_t bytes = total(job) / 100 * percent;
    const auto options = options_within(job, bytes, train_fit_keys());
    ASSERT_FALSE(options.empty()) << percent;
    for (const FitOption& option : options) {
      const spec::Plan& plan = option.plan;
      EXPECT_LE(total(plan), bytes) << option.how;
      EXPECT_EQ(plan.mesh, job.plan.mesh) << option.how;
      EXPECT_EQ(plan.zero, job.plan.zero) << option.how;
      EXPECT_EQ(plan.stages(), job.plan.stages()) << option.how;
      EXPECT_EQ(plan.schedule.lanes, job.plan.schedule.lanes) << option.how;
      EXPECT_EQ(plan.predicted.memory.size(), job.plan.predicted.memory.size());
      EXPECT_EQ(plan.layout.micro_batch * plan.schedule.microbatches,
                job.plan.layout.micro_batch * job.plan.schedule.microbatches);
    }
  }
  EXPECT_EQ(refusal(job, total(job), 0), "");
  EXPECT_NE(refusal(job, total(job) - 1, 0), "");
}

TEST(Fit, keeps_the_stages_of_a_pipeline) {
  expect_split_is_kept(job_of(4, 8, {.pp = 2}));
  expect_split_is_kept(job_of(4, 8, {.pp = 2, .schedule = schedule::Kind::interleaved}));
  expect_split_is_kept(
      job_of(4, 8, {.pp = 2, .dp_replicate = 2, .schedule = schedule::Kind::dualpipe_v}));
}

TEST(Fit, keeps_the_shards_of_zero) {
  expect_split_is_kept(job_of(8, 1, {.dp_shard = 4, .zero_stage = 3}));
  const FitJob job =
      job_of(8, 2, {.dp_shard = 4, .zero_stage = 3, .reduce = spec::ReduceWhen::each});
  expect_split_is_kept(job);
  // The user sets the batch of all ranks.
  const auto options =
      options_within(job, total(job) / 2, {.micro_batch = "m=", .global_batch = "g="});
  ASSERT_FALSE(options.empty());
  EXPECT_NE(options.front().how.find("g=64"), std::string::npos) << options.front().how;
}

TEST(Fit, leaves_out_changes_that_the_layout_does_not_allow) {
  const std::string text = "0F0 0F1 0BW0 0BW1\n1F0 1BW0 1F1 1BW1\n";
  spec::Layout layout{.pp = 2};
  layout.custom_schedule = schedule::from_text(text).value();
  const FitJob job = job_of(4, 2, layout);
  EXPECT_TRUE(options_within(job, total(job) / 10, {.micro_batch = "m="}).empty());
  EXPECT_FALSE(options_within(job, total(job) - 1, train_fit_keys()).empty());
}

TEST(Fit, a_rank_without_peers_needs_its_own_memory_and_that_of_stand_ins) {
  FitJob job = job_of(4, 4, {.pp = 2});
  const auto& memory = job.plan.predicted.memory;
  ASSERT_NE(memory[0].total(), memory[1].total());
  for (const int pp_rank : {0, 1}) {
    job.pp_rank = pp_rank;
    job.stand_in_bytes = 500;
    const int64_t needed = memory[static_cast<size_t>(pp_rank)].total() + 500 + 1000;
    EXPECT_EQ(refusal(job, needed, 1000), "");
    const std::string text = refusal(job, needed - 1, 1000);
    EXPECT_NE(text.find("stand-ins for messages"), std::string::npos) << text;
    for (const FitOption& option : options_within(job, needed / 2, train_fit_keys())) {
      EXPECT_LE(option.plan.predicted.memory[static_cast<size_t>(pp_rank)].total(), needed / 2);
    }
  }
}

// Saves release their copy of the state before the engine is rebuilt: the larger one counts.
TEST(Fit, the_state_must_fit_the_host_while_the_engine_is_rebuilt) {
  const FitJob alone = job_of(2);
  EXPECT_EQ(host_refusal(alone, total(alone) + 9, 1, 7, 9), "");
  const std::string text = host_refusal(alone, total(alone) + 8, 1, 7, 9);
  EXPECT_NE(text.find("state, while the engine is rebuilt"), std::string::npos) << text;
  EXPECT_EQ(host_refusal(alone, total(alone) + 7, 1, 7, 5), "");
  const FitJob spread = job_of(2, 1, {.dp_replicate = 4});
  EXPECT_EQ(host_refusal(spread, 2 * total(spread) + 18, 2, 7, 9), "");
  EXPECT_NE(host_refusal(spread, 2 * total(spread) + 17, 2, 7, 9), "");
  // On a GPU only the copies are on the host.
  const HostBytes copies{.checkpoint_bytes = 7, .rebuild_bytes = int64_t{3} << 30};
  EXPECT_NO_THROW(check_host_fits(copies, 2, int64_t{6} << 30));
  try {
    check_host_fits(copies, 2, (int64_t{6} << 30) - 1);
    ADD_FAILURE() << "accepted";
  } catch (const base::OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("3.000 GiB a rank while the engine is rebuilt"),
              std::string::npos)
        << error.what();
  }
}

TEST(Fit, buffers_of_the_engine_count_besides_every_copy_of_the_state) {
  const HostBytes host{.checkpoint_bytes = 7, .rebuild_bytes = 9, .buffer_bytes = 5};
  EXPECT_EQ(host.largest(), 14);
  const FitJob spread = job_of(2, 1, {.dp_replicate = 4});
  Platform platform = cpu_with(2 * total(spread) + 2 * 14);
  EXPECT_NO_THROW(check_fits(spread, platform, 2, train_fit_keys(), host));
  platform = cpu_with(2 * total(spread) + 2 * 14 - 1);
  try {
    check_fits(spread, platform, 2, train_fit_keys(), host);
    ADD_FAILURE() << "accepted";
  } catch (const base::OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("batches and signals of steps"), std::string::npos)
        << error.what();
  }
}

TEST(Fit, a_refusal_of_a_host_with_gpus_names_every_purpose) {
  constexpr int64_t gib = int64_t{1} << 30;
  const HostBytes host{.checkpoint_bytes = 4 * gib,
                       .rebuild_bytes = 3 * gib,
                       .peer_bytes = 2 * gib,
                       .buffer_bytes = gib};
  EXPECT_NO_THROW(check_host_fits(host, 8, 8 * 7 * gib));
  try {
    check_host_fits(host, 8, 8 * 7 * gib - 1);
    ADD_FAILURE() << "accepted";
  } catch (const base::OutOfMemory& error) {
    const std::string text = error.what();
    for (const char* part :
         {"56.000 GiB", "4.000 GiB a rank for checkpoints", "3.000 GiB a rank while",
          "2.000 GiB a rank for copies", "1.000 GiB a rank for batches"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
  }
}

TEST(Fit, copies_that_outlive_processes_stay_beside_all_others) {
  const FitJob spread = job_of(2, 1, {.dp_replicate = 4});
  const HostBytes copies{.checkpoint_bytes = 7, .rebuild_bytes = 9, .peer_bytes = 100};
  EXPECT_EQ(copies.largest(), 109);
  Platform platform = cpu_with(0);
  const int64_t needed = 2 * total(spread) + 2 * 109;
  EXPECT_EQ(missing_host_bytes(spread, platform, 2, copies, needed), 0);
  EXPECT_EQ(missing_host_bytes(spread, platform, 2, copies, needed - 1), 1);
  platform.backend = spec::cuda_backend(true);  // only the copies are on the host
  EXPECT_EQ(missing_host_bytes(spread, platform, 2, copies, 200), 18);
  const FitJob alone = job_of(2);
  platform = cpu_with(total(alone) + 108);
  try {
    check_fits(alone, platform, 1, train_fit_keys(), copies);
    ADD_FAILURE() << "accepted";
  } catch (const base::OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("copies that outlive processes"), std::string::npos)
        << error.what();
  }
  platform.host_available_bytes += 1;
  EXPECT_NO_THROW(check_fits(alone, platform, 1, train_fit_keys(), copies));
}

TEST(Fit, asks_the_device_for_its_limit) {
  const spec::ModelSpec the_model = fitted_model();
  const spec::Backend backend = spec::cpu_backend();
  const FitJob job =
      make_fit_job(the_model, backend, {.seq_len = 128}, {.precision = spec::Precision::fp32});
  const auto with_budget = [](int64_t bytes) {
    Platform platform;
    platform.device = std::make_unique<device::CpuDevice>(
        kernels::cpu_kernels(), device::CpuDevice::Options{.budget_bytes = bytes});
    return platform;
  };
  Platform unlimited = with_budget(std::numeric_limits<int64_t>::max());
  Platform enough = with_budget(total(job)), less = with_budget(total(job) - 1);
  EXPECT_NO_THROW(check_fits(job, unlimited));
  EXPECT_NO_THROW(check_fits(job, enough));
  EXPECT_THROW(check_fits(job, less), base::OutOfMemory);
}

}  // namespace
}  // namespace trireme::train
