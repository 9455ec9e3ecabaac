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

TEST(PictureTest, the_grid_fits_its_columns) {
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

// Every tag that is opened is closed, and the file has no external references.
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

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PictureTest, memory_has_a_unit_a_scale_and_ranks_and_no_room_if_it_is_not_known) {
  const Schedule schedule = made("1f1b", 2, 4);
  Result result = play(schedule);
  for (RankResult& rank : result.ranks) rank.peak_bytes = 3.5 * 1024 * 1024 * 1024;
  const std::string with = svg({{"a", &schedule, &result, true}});
  for (const char* part : {">activations of each rank (GiB)</text>", ">rank 0: at most 3.5 GiB<",
                           ">1</text>", ">2</text>", ">3</text>", ">rank 1</text>"}) {
    EXPECT_TRUE(has(with, part)) << part;
  }
  for (RankResult& rank : result.ranks) rank.peak_bytes = 0;
  const std::string without = svg({{"a", &schedule, &result, true}});
  EXPECT_FALSE(has(without, "activations of"));
  EXPECT_LT(height_of(without), height_of(with) - 100);
}

// The part of the picture above the first row of a rank.
std::string legend_of(const std::string& text) { return text.substr(0, text.find(">rank 0<")); }

TEST(PictureTest, every_colour_of_a_cell_is_in_the_legend) {
  for (const schedule::Named& named : schedule::catalogue()) {
    const Schedule schedule = made(named.name, 4, 8);
    const Result result = play(schedule);
    const std::string text = svg({{"a", &schedule, &result}});
    const std::string key = "fill=\"#", legend = legend_of(text);
    for (size_t at = text.find("class=\"a\""); at != std::string::npos;
         at = text.find("class=\"a\"", at + 1)) {
      const size_t fill = text.rfind(key, at);
      EXPECT_TRUE(has(legend, text.substr(fill, key.size() + 7))) << named.name;
    }
  }
}

TEST(PictureTest, pairs_have_the_numbers_of_both_micro_batches) {
  const Schedule schedule = made("dualpipe", 8, 32);
  const Result result = play(schedule);
  const std::string text = svg({{"a", &schedule, &result}});
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++found;
    }
    return found;
  };
  size_t pairs = 0;
  for (const auto& program : schedule.program) {
    for (const schedule::Action& action : program) pairs += action.with_next ? 1 : 0;
  }
  ASSERT_GT(pairs, 0U);
  EXPECT_GE(count("class=\"s\"") + 2 * count(" | "), 2 * pairs);
  EXPECT_TRUE(has(legend_of(text), "in a pair those of F and of BW"));
}

TEST(PictureTest, time_has_a_unit) {
  const Schedule schedule = made("1f1b", 2, 2);
  const Result result = play(schedule);
  EXPECT_TRUE(has(svg({{"a", &schedule, &result}}), ">time units</text>"));
  EXPECT_TRUE(has(svg({{"a", &schedule, &result, true}}), ">time (s)</text>"));
  const Result fast =
      simulate(schedule, uniform_costs(schedule.stages(), {.f = 1e-3, .bw = 2e-3}, {}, 0), {},
               {.timeline = true});
  EXPECT_TRUE(has(svg({{"a", &schedule, &fast, true}}), ">time (ms)</text>"));
}

// A stage that is the head alone computes its gradients in F.
TEST(PictureTest, a_forward_that_contains_the_backward_is_marked) {
  const Schedule schedule = made("1f1b", 2, 2);
  const char* mark = ">F that contains the backward</text>";
  Costs costs = uniform_costs(schedule.stages(), {}, {}, 0);
  const Result split = simulate(schedule, costs, {}, {.timeline = true});
  EXPECT_FALSE(has(svg({{"a", &schedule, &split}}), mark));
  costs.seconds[1].bw = 0;
  const Result result = simulate(schedule, costs, {}, {.timeline = true});
  EXPECT_TRUE(has(svg({{"a", &schedule, &result}}), mark));
}

}  // namespace
}  // namespace trireme::sim
