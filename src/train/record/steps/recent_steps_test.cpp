// SPDX-License-Identifier: Apache-2.0
#include "train/record/steps/recent_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

engine::StepSignals signals_of(double loss) {
  return {.mean_loss = loss,
          .loss_min = loss - 1,
          .loss_median = loss,
          .loss_max = loss + 1,
          .grad_norm = 0.1F,
          .clip_limit = 1,
          .learning_rate = 3e-4F,
          .update_norm = 2e-5F,
          .loss_scale = 8,
          .next_loss_scale = 16,
          .was_clipped = true,
          .tokens = 64,
          .masked = 3,
          .padding = 1,
          .layer_grad_norms = {0.25F, 1.0F / 3}};
}

TEST(RecentStepsTest, are_handed_on_to_the_bit) {
  RecentSteps recent;
  for (int64_t step = 1; step <= 5; ++step)
    recent.add(step, signals_of(1.0 / static_cast<double>(step)));
  const auto steps = steps_in(recent.text(2, 4));
  ASSERT_EQ(steps.size(), 3U);
  const engine::StepSignals& got = steps.at(3);
  const engine::StepSignals want = signals_of(1.0 / 3);
  EXPECT_EQ(got.mean_loss, want.mean_loss);
  EXPECT_EQ(got.loss_min, want.loss_min);
  EXPECT_EQ(got.loss_max, want.loss_max);
  EXPECT_EQ(got.grad_norm, want.grad_norm);
  EXPECT_EQ(got.learning_rate, want.learning_rate);
  EXPECT_EQ(got.update_norm, want.update_norm);
  EXPECT_EQ(got.next_loss_scale, want.next_loss_scale);
  EXPECT_EQ(got.was_skipped, want.was_skipped);
  EXPECT_EQ(got.was_clipped, want.was_clipped);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.padding, want.padding);
  EXPECT_EQ(got.layer_grad_norms, want.layer_grad_norms);
}

TEST(RecentStepsTest, a_state_has_what_its_last_step_returned) {
  kernels::StepState state{};
  state.mean_loss = 2.5;
  state.grad_norm = 3;
  state.clip_limit = 1;
  state.learning_rate = 0.5F;
  state.tokens = 64;
  RecentSteps recent;
  EXPECT_FALSE(recent.has(4));
  recent.add(4, signals_of_state(state));
  EXPECT_TRUE(recent.has(4));
  const engine::StepSignals got = steps_in(recent.text(4, 4)).at(4);
  EXPECT_EQ(got.mean_loss, 2.5);
  EXPECT_EQ(got.loss_max, 2.5);
  EXPECT_EQ(got.grad_norm, 3);
  EXPECT_EQ(got.learning_rate, 0.5F);
  EXPECT_EQ(got.tokens, 64);
  EXPECT_TRUE(got.was_clipped);
  EXPECT_FALSE(got.was_skipped);
  EXPECT_TRUE(got.layer_grad_norms.empty());
}

TEST(RecentStepsTest, numbers_that_json_does_not_have_are_not_numbers) {
  RecentSteps recent;
  recent.add(7, signals_of(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(std::isnan(steps_in(recent.text(7, 7)).at(7).mean_loss));
}

TEST(RecentStepsTest, the_newest_are_kept_and_a_repeated_one_replaces_the_first) {
  RecentSteps recent;
  constexpr int64_t last = 2 * static_cast<int64_t>(RecentSteps::max_steps);
  for (int64_t step = 1; step <= last; ++step) recent.add(step, signals_of(1));
  recent.add(last, signals_of(2));
  const auto steps = steps_in(recent.text(0, last));
  EXPECT_EQ(steps.size(), RecentSteps::max_steps);
  EXPECT_EQ(steps.rbegin()->first, last);
  EXPECT_EQ(steps.rbegin()->second.mean_loss, 2);
}

TEST(RecentStepsTest, the_last_whole_line_of_a_step_counts) {
  std::string name = (fs::temp_directory_path() / "trireme-recent-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  EXPECT_EQ(last_recorded_step(folder), 0);
  std::ofstream out(folder / "metrics.jsonl");
  out << R"({"kind":"train","step":9,"loss_metrics/global_avg_loss":1.5})"
      << "\n";
  out << R"({"kind":"resume","step":4})"
      << "\n";
  out << R"({"kind":"train","step":5,"loss_metrics/global_avg_loss":1.5})"
      << "\n";
  out << R"({"kind":"checkpoint","step":5})"
      << "\n";
  out << R"({"kind":"train","step":6,"loss_met)";
  out.close();
  EXPECT_EQ(last_recorded_step(folder), 5);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trireme::train
