// SPDX-License-Identifier: Apache-2.0
#include "train/checkpointing/marks/mark_watch.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace trireme::train {
namespace {

const StepAlarm skip = {"skip", "its gradient norm is 9"};

std::vector<ckpt::MarkLine> steps_pass(MarkWatch& watch, int64_t first, int64_t last) {
  std::vector<ckpt::MarkLine> all;
  for (int64_t step = first; step <= last; ++step) {
    for (auto& line : watch.end_step(step, {})) all.push_back(std::move(line));
  }
  return all;
}

TEST(MarkWatchTest, a_checkpoint_is_good_after_so_many_quiet_steps) {
  MarkWatch watch(10);
  EXPECT_TRUE(steps_pass(watch, 1, 5).empty());
  EXPECT_TRUE(watch.add({5, 1}).empty());
  EXPECT_TRUE(steps_pass(watch, 6, 14).empty());
  const auto marks = watch.end_step(15, {});
  ASSERT_EQ(marks.size(), 1U);
  EXPECT_EQ(marks[0], (ckpt::MarkLine{.of = {5, 1},
                                      .mark = ckpt::Mark::good,
                                      .detector = "steps",
                                      .evidence = "10 later steps without an alarm"}));
  EXPECT_TRUE(steps_pass(watch, 16, 40).empty()) << "a mark is given once";
}

TEST(MarkWatchTest, an_alarm_makes_those_suspect_that_are_not_good_yet) {
  MarkWatch watch(10);
  EXPECT_TRUE(watch.add({5, 1}).empty());
  (void)steps_pass(watch, 6, 15);
  EXPECT_TRUE(watch.add({15, 1}).empty());
  const auto marks = watch.end_step(18, skip);
  ASSERT_EQ(marks.size(), 1U) << "step 5 is good already";
  EXPECT_EQ(marks[0].of, (ckpt::GenerationId{15, 1}));
  EXPECT_EQ(marks[0].mark, ckpt::Mark::suspect);
  EXPECT_EQ(marks[0].detector, "skip");
  EXPECT_EQ(marks[0].evidence, "step 18: its gradient norm is 9");
  // What is saved after an alarm is judged by what follows.
  EXPECT_TRUE(watch.add({20, 1}).empty());
  EXPECT_EQ(steps_pass(watch, 19, 30).size(), 1U);
}

TEST(MarkWatchTest, a_save_that_becomes_durable_after_an_alarm_is_judged_by_its_step) {
  MarkWatch watch(10);
  (void)steps_pass(watch, 1, 6);
  (void)watch.end_step(7, skip);
  EXPECT_EQ(watch.add({6, 1}).at(0).mark, ckpt::Mark::suspect);
  EXPECT_EQ(watch.add({7, 1}).at(0).mark, ckpt::Mark::suspect) << "the alarm is about its update";
  (void)steps_pass(watch, 8, 30);
  EXPECT_EQ(watch.add({12, 1}).at(0).mark, ckpt::Mark::good);
}

TEST(MarkWatchTest, a_run_that_goes_back_counts_again) {
  MarkWatch watch(10);
  (void)watch.add({5, 1});
  (void)steps_pass(watch, 6, 12);
  (void)watch.end_step(13, skip);
  watch.begin(8, {{8, 1}});
  EXPECT_TRUE(steps_pass(watch, 9, 17).empty());
  EXPECT_EQ(watch.end_step(18, {}).at(0).of, (ckpt::GenerationId{8, 1}));
}

// Random histories, against the definition applied to the whole history at its end.
TEST(MarkWatchTest, marks_are_those_of_the_definition) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    constexpr int64_t last = 120, good_after = 15;
    MarkWatch watch(good_after);
    std::set<int64_t> alarms, saves;
    std::map<int64_t, ckpt::Mark> found;
    const auto note = [&](const std::vector<ckpt::MarkLine>& marks) {
      for (const auto& line : marks) {
        EXPECT_TRUE(found.emplace(line.of.step, line.mark).second) << "a mark is given once";
      }
    };
    for (int64_t step = 1; step <= last; ++step) {
      const bool is_alarm = random() % 20 == 0;
      if (is_alarm) alarms.insert(step);
      note(watch.end_step(step, is_alarm ? std::optional(skip) : std::nullopt));
      if (random() % 5 != 0) continue;
      saves.insert(step);
      note(watch.add({step, 1}));
    }
    for (const int64_t save : saves) {
      const auto alarm = alarms.lower_bound(save);
      const bool has_alarm = alarm != alarms.end() && *alarm < save + good_after;
      const bool has_alarm_at_end = alarm != alarms.end() && *alarm == save + good_after;
      if (has_alarm || has_alarm_at_end) {
        EXPECT_EQ(found.at(save), ckpt::Mark::suspect) << "seed " << seed << " step " << save;
      } else if (save + good_after <= last) {
        EXPECT_EQ(found.at(save), ckpt::Mark::good) << "seed " << seed << " step " << save;
      } else {
        EXPECT_FALSE(found.contains(save)) << "seed " << seed << " step " << save;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::train
