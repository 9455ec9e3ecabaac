// SPDX-License-Identifier: Apache-2.0
#include "train/record/grace_budget.h"

#include <gtest/gtest.h>

#include <vector>

namespace trireme::train {
namespace {

obs::Event checkpoint(int64_t step, double bytes, double seconds) {
  obs::Event event;
  event.kind = obs::EventKind::checkpoint;
  event.step = step;
  event.attempt = 2;
  event.data = {{"bytes", bytes}, {"durable_seconds", seconds}};
  return event;
}

bool has(const GraceBudget::Line& line, const std::string& text) {
  return line.text.find(text) != std::string::npos;
}

TEST(GraceBudgetTest, without_a_grace_time_nothing_is_printed) {
  GraceBudget budget(0);
  EXPECT_EQ(budget.start(1000, {}).text, "");
  EXPECT_EQ(budget.saved(1e6, 1).text, "");
}

TEST(GraceBudgetTest, without_an_earlier_save_the_first_one_is_measured) {
  GraceBudget budget(30);
  const GraceBudget::Line start = budget.start(1000, {});
  EXPECT_FALSE(start.is_warning);
  EXPECT_TRUE(has(start, "is measured with the first one")) << start.text;
  const GraceBudget::Line first = budget.saved(2, 0.5);
  EXPECT_FALSE(first.is_warning);
  EXPECT_TRUE(has(first, "a stop takes 8.5 s: ")) << first.text;
  EXPECT_TRUE(has(first, "step 0.50 s, save 2.00 s (measured)")) << first.text;
  EXPECT_TRUE(has(first, "elastic.grace_s is 30 s")) << first.text;
}

TEST(GraceBudgetTest, the_last_earlier_save_predicts_by_its_bytes) {
  const std::vector<obs::Event> earlier = {checkpoint(10, 1000, 50), checkpoint(20, 1000, 4),
                                           checkpoint(30, 0, 9)};
  const GraceBudget::Line line = GraceBudget(30).start(2000, earlier);
  EXPECT_FALSE(line.is_warning);
  EXPECT_TRUE(has(line, "a stop takes 14.0 s: ")) << line.text;
  EXPECT_TRUE(has(line, "save 8.00 s (predicted from that of step 20 in attempt 2)")) << line.text;
}

TEST(GraceBudgetTest, what_does_not_fit_is_a_warning_with_the_numbers) {
  const std::vector<obs::Event> earlier = {checkpoint(10, 1000, 24)};
  const GraceBudget::Line line = GraceBudget(30).start(1000, earlier);
  EXPECT_TRUE(line.is_warning);  // 1 + 24 + 5 is not below 30
  EXPECT_TRUE(has(line, "a stop takes 30.0 s: ")) << line.text;
  EXPECT_TRUE(has(line, "elastic.grace_s = 30 s")) << line.text;
  EXPECT_TRUE(GraceBudget(30).start(0, earlier).is_warning);
}

TEST(GraceBudgetTest, later_saves_are_reported_when_they_stop_fitting) {
  GraceBudget budget(10);
  EXPECT_NE(budget.saved(1, 0).text, "");
  EXPECT_EQ(budget.saved(1.5, 0).text, "");
  EXPECT_TRUE(budget.saved(4, 0).is_warning);
  EXPECT_EQ(budget.saved(4, 0).text, "");
  EXPECT_EQ(budget.saved(1, 0).text, "");
  EXPECT_TRUE(budget.saved(4, 0.1).is_warning);
}

}  // namespace
}  // namespace trireme::train
