// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/timeline.h"

#include <gtest/gtest.h>

#include <vector>

namespace trireme::train {
namespace {

const std::vector<Leg> one_leg = {{.name = "all",
                                   .first_step = 1,
                                   .last_step = 100,
                                   .seq_len = 10,
                                   .global_batch_size = 8,
                                   .local_batch_size = 8}};
// 4 steps of 8 samples, then steps of 4 samples of twice the length.
const std::vector<Leg> two_legs = {{.name = "short",
                                    .first_step = 1,
                                    .last_step = 4,
                                    .seq_len = 10,
                                    .global_batch_size = 8,
                                    .local_batch_size = 8},
                                   {.name = "long",
                                    .first_step = 5,
                                    .last_step = 10,
                                    .seq_len = 20,
                                    .global_batch_size = 4,
                                    .local_batch_size = 4,
                                    .shift = 16}};

Timeline advanced(Timeline timeline, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) timeline.advance();
  return timeline;
}

TEST(Timeline, a_run_begins_at_step_1_and_continues_after_its_checkpoint) {
  Timeline timeline(one_leg);
  EXPECT_EQ(timeline.first_step(), 1);
  EXPECT_EQ(timeline.step(), 0);
  EXPECT_EQ(timeline.attempt_steps(), 0);
  EXPECT_EQ(timeline.samples_at(0), 0);
  timeline.begin_after(10, 80, 800);
  EXPECT_EQ(timeline.first_step(), 11);
  EXPECT_EQ(timeline.shift(), 0);
  EXPECT_EQ(timeline.samples_at(10), 80);
  EXPECT_EQ(timeline.tokens_at(10), 800);
  EXPECT_EQ(timeline.attempt_tokens(), 0);
}

TEST(Timeline, another_batch_continues_with_the_next_sample) {
  for (const int64_t batch : {4, 8, 12}) {
    std::vector<Leg> legs = one_leg;
    legs[0].global_batch_size = batch;
    Timeline timeline(legs);
    timeline.begin_after(10, 80, 800);
    EXPECT_EQ((timeline.first_step() - 1) * batch + timeline.shift(), 80) << batch;
    timeline.advance();
    EXPECT_EQ(timeline.samples_at(11), 80 + batch);
    EXPECT_EQ(timeline.tokens_at(11), 800 + 10 * batch);
    EXPECT_EQ(timeline.attempt_tokens(), 10 * batch);
  }
}

TEST(Timeline, samples_and_tokens_follow_the_legs) {
  const Timeline timeline = advanced(Timeline(two_legs), 6);
  EXPECT_EQ(timeline.samples_at(timeline.step()), 4 * 8 + 2 * 4);
  EXPECT_EQ(timeline.attempt_tokens(), 4 * 80 + 2 * 80);
}

TEST(Timeline, signals_belong_to_the_steps_of_their_engine) {
  Timeline timeline = advanced(Timeline(two_legs), 4);
  EXPECT_EQ(timeline.step_of_signal(0), 1);
  EXPECT_EQ(timeline.step_of_signal(3), 4);
  timeline.take_signal(1);
  EXPECT_EQ(timeline.untaken_signals(), 2);
  timeline.engine_replaced();
  EXPECT_EQ(timeline.untaken_signals(), 0);
  EXPECT_EQ(timeline.engine_steps(), 0);
  timeline.advance();
  EXPECT_EQ(timeline.step(), 5);
  EXPECT_EQ(timeline.step_of_signal(0), 5);
}

TEST(Timeline, replayed_steps_of_an_engine_do_not_belong_to_the_attempt) {
  Timeline timeline(one_leg);
  timeline.begin_after(4, 32, 320);
  timeline = advanced(timeline, 6);
  EXPECT_EQ(timeline.step(), 10);
  timeline.begin_after(10, 80, 800);
  EXPECT_EQ(timeline.attempt_steps(), 0);
  EXPECT_EQ(timeline.engine_steps(), 0);
  EXPECT_EQ(timeline.untaken_signals(), 0);
  timeline.advance();
  // The engine's signals go on counting.
  EXPECT_EQ(timeline.step_of_signal(6), 11);
  EXPECT_EQ(timeline.engine_steps(), 1);
  EXPECT_EQ(timeline.untaken_signals(), 1);
}

TEST(Timeline, repeated_steps_count_once) {
  Timeline timeline(two_legs);
  timeline.begin_after(2, 16, 160);
  timeline.begin_counts(1);  // one step was taken over from elsewhere
  timeline = advanced(timeline, 5);
  const Timeline before = timeline;
  // Steps 3 to 5 were run: two applied, one skipped. Step 6 overflowed, and 7 was queued after it.
  EXPECT_EQ(timeline.step_of_count(1 + 3), 5);
  timeline.go_back(6);
  EXPECT_EQ(timeline.step(), 5);
  EXPECT_EQ(timeline.attempt_steps(), 3);
  EXPECT_EQ(timeline.attempt_tokens(), 3 * 80);
  EXPECT_EQ(timeline.engine_steps(), 0);
  timeline = advanced(timeline, 2);
  EXPECT_EQ(timeline.step(), before.step());
  EXPECT_EQ(timeline.attempt_steps(), before.attempt_steps());
  EXPECT_EQ(timeline.attempt_tokens(), before.attempt_tokens());
  EXPECT_EQ(timeline.samples_at(7), before.samples_at(7));
  EXPECT_EQ(timeline.step_of_signal(0), 6);
  EXPECT_EQ(timeline.step_of_count(1 + 5), 7);
}

TEST(Timeline, the_way_back_ends_where_the_attempt_began) {
  Timeline timeline(one_leg);
  timeline.begin_after(2, 16, 160);
  timeline = advanced(timeline, 3);
  EXPECT_DEATH(timeline.go_back(2), "back to step 2 of 3 to 5");
  EXPECT_DEATH(timeline.go_back(7), "back to step 7 of 3 to 5");
}

}  // namespace
}  // namespace trireme::train
