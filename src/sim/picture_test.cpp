// SPDX-License-Identifier: Apache-2.0
#include "sim/picture.h"

#include <gtest/gtest.h>

#include "schedule/catalogue.h"
#include "sim/made_test.h"

namespace trireme::sim {
namespace {

using schedule::Schedule;

Result play(const Schedule& schedule) {
  return simulate(schedule, uniform_costs(schedule.stages(), {}, {.f_to_w = 1}, 0), {},
                  {.timeline = true});
}

TEST(PictureTest, the_grid_shows_work_and_bubbles) {
  const Schedule schedule = made("1f1b", 2, 2);
  EXPECT_EQ(grid(schedule, play(schedule), 20),
            "0 F0F1....B0--..B1--\n"
            "1 ..F0B0--F1B1--....\n");
  const Schedule v = made("zb-v", 1, 2);
  EXPECT_EQ(grid(v, play(v), 40), "0 F0-f0-b0-w0-F1-B0-W0-f1-b1-w1-B1-W1-\n");
  const Schedule pairs = made("dualpipe-v", 1, 2);
  EXPECT_EQ(grid(pairs, play(pairs), 40), "0 F0-f0-F1-b0----X1/0-----b1----B1-W1-\n");
}

TEST(PictureTest, the_grid_keeps_to_its_columns) {
  for (const schedule::Named& named : schedule::catalogue()) {
    const Schedule schedule = made(named.name, 8, 64);
    const std::string text = grid(schedule, play(schedule), 100);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      EXPECT_LE(end - begin, 100U) << named.name;
      begin = end + 1;
    }
  }
}

TEST(PictureTest, a_fault_is_shown_at_its_place) {
  Schedule schedule = made("1f1b", 2, 2);
  std::swap(schedule.program[1][1], schedule.program[1][2]);
  const auto fault = schedule::find_fault(schedule, 1);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault_grid(schedule, *fault, 60),
            "  0  0F0 0SendY0>1 0F1 0SendY1>1 0RecvDy0<1 0BW0 ...\n"
            "  1  1RecvX0<0 [1BW0] 1F0 1SendDx0>0 1RecvX1<0 1F1 ...\n");
}

// Every tag that is opened is closed, and nothing points outside.
TEST(PictureTest, the_svg_is_well_formed_and_stands_alone) {
  for (const schedule::Named& named : schedule::catalogue()) {
    const Schedule schedule = made(named.name, 4, 8);
    const Result result = play(schedule);
    const std::string text =
        svg({{"a < b & c", &schedule, &result}, {"again", &schedule, &result}});
    std::vector<std::string> open;
    for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
      const size_t end = text.find('>', at);
      ASSERT_NE(end, std::string::npos);
      const std::string tag = text.substr(at + 1, end - at - 1);
      if (tag.starts_with('?')) continue;
      if (tag.starts_with('/')) {
        ASSERT_FALSE(open.empty());
        EXPECT_EQ(open.back(), tag.substr(1));
        open.pop_back();
      } else if (!tag.ends_with('/')) {
        open.push_back(tag.substr(0, tag.find(' ')));
      }
    }
    EXPECT_TRUE(open.empty()) << named.name;
    EXPECT_EQ(text.find("href"), std::string::npos);
    EXPECT_NE(text.find("a &lt; b &amp; c"), std::string::npos);
    EXPECT_NE(text.find("<line"), std::string::npos);
  }
}

double height_of(const std::string& text) {
  const std::string key = " height=\"";
  return std::stod(text.substr(text.find(key) + key.size()));
}

TEST(PictureTest, memory_has_a_unit_and_no_room_where_it_is_not_known) {
  const Schedule schedule = made("1f1b", 2, 4);
  Result result = play(schedule);
  for (RankResult& rank : result.ranks) rank.peak_bytes = 3.5 * 1024 * 1024 * 1024;
  const std::string with = svg({{"a", &schedule, &result, true}});
  EXPECT_NE(with.find(">3.5 GiB</text>"), std::string::npos);
  for (RankResult& rank : result.ranks) rank.peak_bytes = 0;
  const std::string without = svg({{"a", &schedule, &result, true}});
  EXPECT_EQ(without.find("kept"), std::string::npos);
  EXPECT_LT(height_of(without), height_of(with) - 100);
}

}  // namespace
}  // namespace trireme::sim
