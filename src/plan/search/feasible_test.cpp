// SPDX-License-Identifier: Apache-2.0
#include "plan/search/feasible.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/samples_test.h"
#include "plan/search/answer.h"

namespace trireme::plan {
namespace {

std::string refusal(const Job& job, const SearchOptions& options) {
  try {
    (void)search(job, shipped_machine("h100"), trireme_stack(), options);
  } catch (const base::ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Feasible, precisions_and_ranks_that_the_machine_file_lacks_are_rejected) {
  const spec::Machine cpu = shipped_machine("cpu"), h100 = shipped_machine("h100");
  EXPECT_EQ(missing_in_machine(cpu, 2, Precision::fp32), "");
  EXPECT_NE(missing_in_machine(cpu, 3, Precision::fp32), "");
  for (const Precision precision : {Precision::fp8, Precision::fp8_block, Precision::fp8_delayed}) {
    EXPECT_NE(missing_in_machine(cpu, 2, precision).find("no processor.fp8_tflops"),
              std::string::npos);
  }
  EXPECT_EQ(missing_in_machine(h100, 1024, Precision::fp8), "");
  EXPECT_NE(missing_in_machine(h100, 8, Precision::fp4), "");
  const Job job = job_of("gpt2-124m", 8, 1024);
  EXPECT_THROW((void)propose(job, cpu, trireme_stack(), {.dp_replicate = 4}), base::ConfigError);
  EXPECT_THROW((void)search(job, cpu, trireme_stack(), {.gpus = 4}), base::ConfigError);
}

// The batch that the message proposes has a layout.
TEST(Feasible, the_nearest_batch_is_feasible) {
  Dice dice(5);
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    Job job = job_of("gpt2-124m", dice.of<int64_t>({3, 7, 13, 50, 97, 640}), 1024);
    SearchOptions options;
    options.gpus = dice.of<int64_t>({6, 64, 96, 128});
    options.space.tp = {dice.of<int>({1, 2})};
    options.space.pp = {1, 2};
    options.space.micro_batch = {dice.of<int64_t>({1, 3, 4})};
    const std::string text = refusal(job, options);
    const size_t at = text.find("nearest batch: ");
    if (at == std::string::npos) {
      EXPECT_EQ(text, "");
      continue;
    }
    ++refused;
    job.global_batch = std::stoll(text.substr(at + 15));
    EXPECT_EQ(refusal(job, options), "") << text;
  }
  EXPECT_GT(refused, 10);
}

TEST(Feasible, limits_that_exclude_every_layout_are_named) {
  const Job job = job_of("gpt2-124m", 64, 1024);
  SearchOptions options;
  options.gpus = 8;
  options.space.tp = {3, 5};
  EXPECT_NE(refusal(job, options).find("8 GPUs and 12 heads: 1, 2, 4 are allowed, found 3, 5"),
            std::string::npos)
      << refusal(job, options);
  options.space.tp = {4};
  options.space.pp = {4};
  EXPECT_NE(refusal(job, options).find("with tp 4 pp may be 1, 2"), std::string::npos)
      << refusal(job, options);
  options.space.pp = {2};
  EXPECT_EQ(refusal(job, options), "");
  options.space.pipes = {Kind::one_f_one_b};
  options.space.chunks = {2};
  EXPECT_NE(refusal(job, options).find("remove one"), std::string::npos) << refusal(job, options);
}

}  // namespace
}  // namespace trireme::plan
