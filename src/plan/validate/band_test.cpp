// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/band.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/samples_test.h"
#include "spec/layout/layout_text.h"

namespace trireme::plan {
namespace {

Band band(const Job& job, const std::string& machine, const std::string& stack,
          const std::string& layout, int64_t gpus) {
  return band_of(job, shipped_machine(machine), shipped_stack(stack),
                 layout_from_text(layout, gpus));
}

bool warns(const Band& band, const std::string& part) {
  return std::ranges::any_of(band.warnings, [&](const std::string& warning) {
    return warning.find(part) != std::string::npos;
  });
}

TEST(Band, questions_like_the_compared_runs_have_no_warning) {
  const Job job = job_of("gpt3-175b", 1024, 2048);
  const Band found = band(job, "a100-80gb", "megatron-2022", "tp=8 pp=8", 512);
  EXPECT_EQ(found.time, shipped_machine("a100-80gb").time_error);
  EXPECT_GT(found.memory, 0);
  EXPECT_TRUE(found.warnings.empty());
}

TEST(Band, questions_unlike_the_compared_runs_widen_it_with_a_warning) {
  const Job job = job_of("llama-8b", 1 << 20, 4096);
  const double inside = band(job, "a100-80gb", "megatron-core", "tp=8", 64).time;
  const auto wider = [&](const Job& asked, const std::string& layout, int64_t gpus,
                         const std::string& why) {
    const Band found = band(asked, "a100-80gb", "megatron-core", layout, gpus);
    EXPECT_GT(found.time, inside) << why;
    EXPECT_TRUE(warns(found, why)) << why;
  };
  wider(job, "tp=8 cp=2", 64, "context parallelism");
  wider(job, "tp=8 fp8", 64, "fp8");
  wider(job, "tp=8", 8192, "8192 GPUs");
  wider(with_experts(job, 8, 2, 1024), "tp=8 sp", 64, "experts");
  Job uneven = with_experts(job, 8, 2, 1024);
  uneven.expert_imbalance = 2;
  EXPECT_TRUE(warns(band(uneven, "a100-80gb", "trireme", "ep=8", 64), "--row-budget 2"));
  EXPECT_FALSE(warns(band(uneven, "a100-80gb", "trireme", "ep=8 row-budget=2", 64), "--row-bu"));
  EXPECT_FALSE(warns(band(uneven, "a100-80gb", "trireme", "", 64), "--row-budget"));
  wider(job_of("llama-15m", 64, 256), "", 8, "parameters");
}

TEST(Band, a_machine_without_measured_runs_has_a_warning) {
  const Job job = job_of("llama-8b", 64, 4096);
  spec::Machine machine = shipped_machine("a100-80gb");
  machine.time_error = 0;
  const Band found = band_of(job, machine, shipped_stack("megatron-core"), {});
  EXPECT_TRUE(warns(found, "no measured run on a100-80gb"));
  machine.time_error = 0.03;
  machine.memory_error = 0.01;
  const Band measured = band_of(job, machine, shipped_stack("megatron-core"), {});
  EXPECT_EQ(measured.time, 0.03);
  EXPECT_EQ(measured.memory, 0.01);
}

TEST(Band, trireme_on_several_gpus_has_a_warning) {
  const Job job = job_of("llama-8b", 64, 4096);
  const Band several = band(job, "a100-80gb", "trireme", "tp=8", 8);
  const Band one = band(job, "a100-80gb", "trireme", "", 1);
  EXPECT_TRUE(warns(several, "Trireme on several GPUs"));
  EXPECT_GE(several.time, 0.15);
  EXPECT_FALSE(warns(one, "Trireme on several GPUs"));
  EXPECT_EQ(one.time, shipped_machine("a100-80gb").time_error);
  // Ranks on one CPU host were measured.
  EXPECT_FALSE(warns(band(job, "cpu", "trireme", "tp=2", 2), "Trireme on several GPUs"));
}

}  // namespace
}  // namespace trireme::plan
