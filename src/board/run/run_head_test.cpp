// SPDX-License-Identifier: Apache-2.0
#include "board/run/run_head.h"

#include <gtest/gtest.h>

#include <cmath>

#include "board/series/written_metrics_test.h"
#include "obs/scratch_folder_test.h"

namespace trireme::board {
namespace {

double loss_of(int step) { return 8.0 - 1e-4 * step; }

std::string loss_lines(int first, int last) {
  std::string text;
  for (int step = first; step <= last; ++step) {
    text += train_line(step, 1000 + step,
                       fmt::format("\"{}\":{},\"lr\":0.1", RunHead::loss_tag, loss_of(step)));
  }
  return text;
}

void expect_curve(const RunHead& head, int last_step) {
  const std::vector<RunHead::Point> curve = head.curve();
  EXPECT_GE(curve.size(), 30U);
  EXPECT_LE(curve.size(), RunHead::max_points);
  int64_t before = 0;
  for (const RunHead::Point& point : curve) {
    EXPECT_GT(point.step, before);
    EXPECT_LE(point.step - before, 1 + last_step / 16) << "a gap in the curve";
    EXPECT_NEAR(point.loss, loss_of(static_cast<int>(point.step)), 1e-9);
    before = point.step;
  }
  EXPECT_EQ(before, last_step);
}

class RunHeadTest : public testing::Test {
 protected:
  obs::ScratchFolder folder;
  std::filesystem::path file = folder / "metrics.jsonl";
};

TEST_F(RunHeadTest, a_long_file_is_sampled_and_then_followed) {
  const std::string validation =
      "{\"kind\":\"validation\",\"attempt\":1,\"step\":30000,"
      "\"time\":5,\"validation_metrics/loss\":4.5}\n";
  write_text(file, loss_lines(1, 30'000) + validation + loss_lines(30'001, 40'000));
  RunHead head(file);
  EXPECT_TRUE(head.poll());
  EXPECT_EQ(head.last_step(), 40'000);
  EXPECT_EQ(head.last_value(RunHead::loss_tag), loss_of(40'000));
  EXPECT_EQ(head.last_value("lr"), 0.1);
  EXPECT_EQ(head.last_value(RunHead::validation_tag), 4.5);  // far before the end of the file
  EXPECT_EQ(head.last_value("none"), std::nullopt);
  EXPECT_EQ(head.bytes(), static_cast<int64_t>(std::filesystem::file_size(file)));
  expect_curve(head, 40'000);
  EXPECT_FALSE(head.poll());
  write_text(file, loss_lines(40'001, 90'000), true);
  EXPECT_TRUE(head.poll());
  EXPECT_EQ(head.last_step(), 90'000);
  expect_curve(head, 90'000);
}

TEST_F(RunHeadTest, a_curve_that_grows_line_by_line_keeps_its_size) {
  RunHead head(file);
  EXPECT_FALSE(head.poll());
  EXPECT_EQ(head.last_step(), -1);
  EXPECT_TRUE(head.curve().empty());
  for (int step = 1; step <= 2000; ++step) {
    write_text(file, loss_lines(step, step), true);
    ASSERT_TRUE(head.poll());
    ASSERT_EQ(head.curve().back().step, step);
  }
  expect_curve(head, 2000);
}

TEST_F(RunHeadTest, a_resumed_run_goes_back_and_a_replaced_file_begins_again) {
  write_text(file, loss_lines(1, 60) + loss_lines(41, 50));
  RunHead head(file);
  head.poll();
  EXPECT_EQ(head.last_step(), 50);
  EXPECT_EQ(head.curve().size(), 50U);
  write_text(file, loss_lines(1, 3));
  EXPECT_TRUE(head.poll());
  EXPECT_EQ(head.restarts(), 1);
  EXPECT_EQ(head.last_step(), 3);
  EXPECT_EQ(head.curve().size(), 3U);
}

TEST_F(RunHeadTest, losses_that_are_not_finite_stay_in_the_curve) {
  write_text(file, train_line(1, 1, fmt::format("\"{}\":\"NaN\"", RunHead::loss_tag)));
  RunHead head(file);
  head.poll();
  ASSERT_EQ(head.curve().size(), 1U);
  EXPECT_TRUE(std::isnan(head.curve()[0].loss));
}

}  // namespace
}  // namespace trireme::board
