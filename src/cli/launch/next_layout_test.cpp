// SPDX-License-Identifier: Apache-2.0
#include "cli/launch/next_layout.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "config/layout.h"
#include "plan/import/config_layout.h"
#include "plan/samples_test.h"
#include "plan/search/confirm.h"

namespace trireme::cli {
namespace {

config::Config loaded(const std::vector<std::string>& overrides) {
  return config::load(
      std::filesystem::path(),
      {.overrides = overrides, .model_folders = {plan::source_root() / "configs" / "models"}});
}

config::Config solved(const std::vector<std::string>& overrides) {
  return config::solved(loaded(overrides), 0);
}

double bytes_of(const config::Config& config, const spec::Machine& machine) {
  return plan::confirm(plan::job_of(config), machine, plan::trireme_stack(),
                       config::settled_layout(config))
      .bytes;
}

TEST(NextLayoutTest, needs_less_memory_on_the_same_ranks_for_the_same_job) {
  const spec::Machine machine = plan::shipped_machine("h100");
  std::vector<std::string> words = {
      "--model.name=llama-1b",         "--training.seq_len=2048",
      "--training.local_batch_size=8", "--training.global_batch_size=64",
      "--precision.recipe=bf16",       "--parallelism.data_parallel_replicate_degree=8",
      "--training.dataset_path=x"};
  const config::Config present = solved(words);
  const double bytes = bytes_of(present, machine);
  for (const double share : {0.9, 0.5, 0.2}) {
    const auto next = next_layout(present, machine, share);
    ASSERT_TRUE(next) << share;
    ASSERT_FALSE(next->words.empty());
    std::vector<std::string> all = words;
    all.insert(all.end(), next->words.begin(), next->words.end());
    const config::Config config = solved(all);
    EXPECT_LE(bytes_of(config, machine), share * bytes) << fmt::format("{}", fmt::join(all, " "));
    EXPECT_EQ(config::settled_layout(config).ranks(), 8);
    EXPECT_EQ(config.training.global_batch_size, 64);
    EXPECT_EQ(config.training.seq_len, 2048);
    EXPECT_EQ(config.precision.recipe, "bf16");
  }
  EXPECT_FALSE(next_layout(present, machine, 1e-6));
}

}  // namespace
}  // namespace trireme::cli
