// SPDX-License-Identifier: Apache-2.0
#include "train/fit.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::train {
namespace {

spec::ModelSpec model() {
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

spec::Plan plan_of(int64_t sequences, int accumulate = 1) {
  return spec::one_rank_plan(model(),
                             {.microbatch_sequences = sequences,
                              .seq_len = 2048,
                              .microbatches = accumulate,
                              .recipe = spec::recipe_from_name("bf16")},
                             spec::cuda_backend(true));
}

int64_t total(const spec::Plan& plan) { return plan.predicted.largest().total(); }

std::string refusal(const spec::Plan& plan, int64_t available, int64_t external) {
  try {
    check_fits(model(), plan, spec::cuda_backend(true), available, external);
  } catch (const base::OutOfMemory& error) {
    return error.what();
  }
  return "";
}

TEST(Fit, takes_what_fits_to_the_byte) {
  const spec::Plan plan = plan_of(8);
  EXPECT_EQ(refusal(plan, total(plan) + 1000, 1000), "");
  EXPECT_NE(refusal(plan, total(plan) + 999, 1000), "");
}

TEST(Fit, a_refusal_has_the_table_and_what_to_do) {
  const spec::Plan plan = plan_of(8);
  const std::string said = refusal(plan, total(plan) * 3 / 4, 1 << 20);
  for (const char* part :
       {"does not fit", "parameters", "gradients", "optimizer", "scratch", "input batches",
        "libraries", "needed", "available", "missing", "the cheapest first", "more time",
        "--activation_checkpoint.mode=", "--training.local_batch_size="}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
}

TEST(Fit, options_fit_keep_the_global_batch_and_come_by_cost) {
  const spec::Plan plan = plan_of(6, 2);
  for (const int percent : {95, 80, 60, 50}) {
    const int64_t bytes = total(plan) / 100 * percent;
    const auto options =
        options_within(model(), plan, spec::cuda_backend(true), bytes, train_fit_keys());
    ASSERT_FALSE(options.empty()) << percent;
    double cost = -1;
    for (const FitOption& option : options) {
      EXPECT_LE(total(option.plan), bytes) << option.how;
      EXPECT_EQ(option.plan.microbatch_sequences * option.plan.schedule.microbatches, 12);
      EXPECT_GE(option.relative_cost, cost) << option.how;
      EXPECT_FALSE(option.how.empty());
      cost = option.relative_cost;
    }
  }
}

TEST(Fit, no_option_contains_a_smaller_one) {
  const spec::Plan plan = plan_of(8);
  const auto options =
      options_within(model(), plan, spec::cuda_backend(true), total(plan) - 1, train_fit_keys());
  // Each change alone saves a byte.
  for (const FitOption& option : options) {
    EXPECT_EQ(option.how.find(" --activation"), std::string::npos) << option.how;
    EXPECT_EQ(option.how.find("bf16 "), std::string::npos) << option.how;
  }
}

TEST(Fit, full_recompute_costs_more_time_than_selective) {
  const spec::Plan plan = plan_of(8);
  double selective = 0, full = 0;
  for (const int percent : {99, 60}) {
    for (const FitOption& o : options_within(model(), plan, spec::cuda_backend(true),
                                             total(plan) / 100 * percent, train_fit_keys())) {
      if (o.how == "--activation_checkpoint.mode=selective") selective = o.relative_cost;
      if (o.how == "--activation_checkpoint.mode=full") full = o.relative_cost;
    }
  }
  EXPECT_GT(selective, 0);
  EXPECT_GT(full, selective);
  // Less than a forward beside a forward and two backwards: the head is not computed again.
  EXPECT_GT(full, 0.1);
  EXPECT_LT(full, 1.0 / 3);
}

TEST(Fit, says_what_the_smallest_needs_where_nothing_fits) {
  const std::string said = refusal(plan_of(8), 1 << 20, 0);
  for (const char* part : {"no change", "--activation_checkpoint.mode=full", "bf16",
                           "--training.local_batch_size=1", "smaller model"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
}

TEST(Fit, offers_only_what_can_be_set) {
  const spec::Plan plan = plan_of(8);
  const auto options = options_within(model(), plan, spec::cuda_backend(true), total(plan) / 2,
                                      {.micro_batch = "--batch "});
  ASSERT_EQ(options.size(), 1U);
  EXPECT_TRUE(options.front().how.starts_with("--batch ")) << options.front().how;
}

TEST(Fit, asks_the_device_for_its_limit) {
  const spec::Plan plan = spec::one_rank_plan(
      model(), {.seq_len = 128, .recipe = spec::recipe_from_name("fp32")}, spec::cpu_backend());
  const auto with_budget = [](int64_t bytes) {
    Platform platform;
    platform.device = std::make_unique<device::CpuDevice>(
        kernels::cpu_kernels(), device::CpuDevice::Options{.budget_bytes = bytes});
    return platform;
  };
  Platform unlimited = with_budget(std::numeric_limits<int64_t>::max());
  Platform enough = with_budget(total(plan)), less = with_budget(total(plan) - 1);
  EXPECT_NO_THROW(check_fits(model(), plan, unlimited));
  EXPECT_NO_THROW(check_fits(model(), plan, enough));
  EXPECT_THROW(check_fits(model(), plan, less), base::OutOfMemory);
}

}  // namespace
}  // namespace trireme::train
