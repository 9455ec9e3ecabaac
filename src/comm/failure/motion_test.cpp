// SPDX-License-Identifier: Apache-2.0
// Ranks that hang are named, and never those that save, compile, wait for data or for others.
#include "comm/failure/motion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "comm/failure/verdict.h"

namespace trireme::comm {
namespace {

using Call = RankPosition::Call;

// What a rank shows at a moment, and what MotionWatch makes of it four times a second.
class MovingRank {
 public:
  Motion beat(double now) {
    return watch_.look(
        {.phase = phase, .has_limit = phase == "step", .step = step, .steps = step, .moves = moves},
        now);
  }
  std::string phase = "step";
  int64_t step = 0;
  uint64_t moves = 0;

 private:
  MotionWatch watch_;
};

// Steps of `step_seconds` with ten ops each, from time 0 on. Returns the last motion.
Motion train(MovingRank& rank, double& now, double step_seconds, int steps) {
  Motion motion;
  const double end = now + step_seconds * steps;
  for (; now < end; now += 0.25) {
    rank.step = 1 + static_cast<int64_t>(now / step_seconds);
    rank.moves = static_cast<uint64_t>(now / step_seconds * 10);
    motion = rank.beat(now);
  }
  return motion;
}

// Beats without any move.
Motion rest(MovingRank& rank, double& now, double seconds) {
  Motion motion;
  for (const double end = now + seconds; now < end; now += 0.25) motion = rank.beat(now);
  return motion;
}

TEST(Motion, the_limit_is_five_times_the_time_of_slow_steps_and_at_least_two_seconds) {
  MovingRank fast, slow;
  double now = 1;
  EXPECT_EQ(train(fast, now, 0.05, 1000).limit_s, 2);
  now = 1;
  EXPECT_NEAR(train(slow, now, 3, 100).limit_s, 15, 1.3);
}

TEST(Motion, there_is_no_limit_without_history_or_outside_of_steps) {
  MovingRank rank;
  double now = 1;
  EXPECT_EQ(train(rank, now, 1, 19).limit_s, 0);
  EXPECT_GT(train(rank, now, 1, 10).limit_s, 0);
  for (const char* phase : {"data", "compile", "warm-up", "other"}) {
    rank.phase = phase;
    EXPECT_EQ(rank.beat(now += 0.25).limit_s, 0) << phase;
  }
  // After a warm-up, steps are of another shape.
  rank.phase = "step";
  EXPECT_EQ(rank.beat(now += 0.25).limit_s, 0);
}

TEST(Motion, any_op_or_call_is_a_move) {
  MovingRank rank;
  double now = 1;
  (void)train(rank, now, 1, 50);
  for (int i = 0; i < 400; ++i) {
    ++rank.moves;
    EXPECT_LT(rank.beat(now += 0.25).still_s, 0.3);
  }
  EXPECT_GT(rest(rank, now, 30).still_s, 29);
  // It was stopped, and runs again.
  EXPECT_EQ(rank.beat(now += 30).still_s, 0);
}

// A device that tests move, as the work of a thread.
class TestWork final : public base::QueuedWork {
 public:
  explicit TestWork(base::RankActivity& activity) : activity_(activity) {
    activity_.set_work(*this);
  }
  ~TestWork() override { activity_.remove_work(*this); }
  TestWork(const TestWork&) = delete;
  TestWork& operator=(const TestWork&) = delete;
  Count count() const override { return now; }
  Count now;

 private:
  base::RankActivity& activity_;
};

class DeviceMotion : public testing::Test {
 protected:
  Motion beat() {
    return watch_.look(look_at(base::RankActivity::current(), recorder_).value(), now_ += 0.05);
  }
  // The host queues a step of ten ops and a call, as two pieces.
  void queue_step() {
    const base::ActivityPhaseScope phase(base::step_phase);
    base::RankActivity::current().set_step(++step_);
    for (int op = 0; op < 10; ++op) base::RankActivity::current().set_op("gemm");
    calls_.push_back(recorder_.scheduled({}));
    work_.now.queued += 2;
  }
  // The device does the oldest one that waits.
  void do_step() {
    recorder_.started(calls_.front());
    recorder_.completed(calls_.front());
    calls_.pop_front();
    work_.now.done += 2;
    ++work_.now.steps;
  }
  // Steps of `seconds` each, whose host is 10 steps ahead.
  Motion train(double seconds, int steps) {
    Motion motion;
    for (int i = 0; i < 10; ++i) queue_step();
    for (int step = 0; step < steps; ++step) {
      for (const double end = now_ + seconds; now_ < end;) motion = beat();
      queue_step();
      do_step();
    }
    return motion;
  }

  base::RankActivityScope scope_{0};
  TestWork work_{base::RankActivity::current()};
  FlightRecorder recorder_{0};
  MotionWatch watch_;
  double now_ = 1;
  int64_t step_ = 0;
  std::deque<int64_t> calls_;
};

TEST_F(DeviceMotion, a_host_that_goes_on_does_not_hide_a_device_that_stands_still) {
  EXPECT_EQ(train(0.1, 100).limit_s, 2);
  (void)beat();
  for (int i = 0; i < 45; ++i) {
    queue_step();
    EXPECT_NEAR(beat().still_s, 0.05 * (i + 1), 1e-9);
  }
  const Motion motion = beat();
  EXPECT_GT(motion.still_s, motion.limit_s);
  EXPECT_EQ(motion.phase, "step");
  EXPECT_EQ(motion.step, step_);
  do_step();
  EXPECT_EQ(beat().still_s, 0);
}

TEST_F(DeviceMotion, a_host_that_waits_outside_of_steps_waits_for_the_device) {
  (void)train(0.1, 100);
  const base::ActivityPhaseScope phase(base::other_phase);
  (void)beat();
  Motion motion;
  for (int i = 0; i < 45; ++i) motion = beat();
  EXPECT_GT(motion.still_s, motion.limit_s);
  EXPECT_GT(motion.limit_s, 0);
  // The device has done everything: what the host does then has no limit.
  while (!calls_.empty()) do_step();
  EXPECT_EQ(beat().limit_s, 0);
}

// The limit is that of the device's steps, however fast the host queues them.
TEST_F(DeviceMotion, a_host_that_waits_for_a_long_step_is_not_still_for_too_long) {
  EXPECT_NEAR(train(1, 40).limit_s, 5, 0.3);
  double max_still_s = 0;
  for (int i = 0; i < 40; ++i) max_still_s = std::max(max_still_s, beat().still_s);
  EXPECT_NEAR(max_still_s, 2, 0.06);
  EXPECT_LT(max_still_s, beat().limit_s);
}

TEST_F(DeviceMotion, the_host_moves_a_rank_whose_device_is_idle) {
  (void)train(0.1, 100);
  while (!calls_.empty()) do_step();
  const base::ActivityPhaseScope phase(base::step_phase);
  for (int i = 0; i < 100; ++i) {
    base::RankActivity::current().set_op("gemm");
    EXPECT_EQ(beat().still_s, 0);
  }
  EXPECT_NEAR((beat(), beat(), beat()).still_s, 0.15, 1e-9);
}

TEST_F(DeviceMotion, a_step_that_is_captured_has_no_limit) {
  (void)train(0.1, 100);
  const base::ActivityPhaseScope phase(base::compile_phase);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(beat().limit_s, 0);
}

Call sum(int64_t sequence) {
  return {.op = "all_reduce", .group = "world", .ranks = {0, 1, 2, 3}, .sequence = sequence};
}

RankReport report_of(int rank, const Motion& motion, std::optional<Call> inside, bool has_begun) {
  RankPosition position{.rank = rank, .host = "host", .process = 100 + rank};
  position.reached = {has_begun && inside ? *inside : sum(16)};
  position.finished = sum(16);
  position.inside = std::move(inside);
  position.has_begun = has_begun;
  position.motion = motion;
  return {.position = position, .silent_s = 0.1};
}

const Motion hangs{.phase = "step", .still_s = 2.3, .limit_s = 2};

TEST(Hang, the_rank_that_does_not_move_is_named_and_not_those_that_wait_for_it) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 4; ++rank) reports.push_back(report_of(rank, hangs, sum(17), true));
  reports[2] = report_of(2, hangs, std::nullopt, false);
  const auto verdict = hang_of(reports);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, VerdictKind::stalled);
  EXPECT_EQ(verdict->ranks, std::vector<int>{2});
  EXPECT_EQ(verdict->text,
            "rank 2 (process 102 on host) hangs in phase 'step': nothing has moved for 2.3 s, and "
            "the limit of the phase is 2.0 s; at its last heartbeat it had finished all_reduce #16 "
            "of group 'world'; ranks 0, 1 and 3 wait in all_reduce #17 of group 'world'");
  // On a GPU the call may be queued behind a kernel that does not end.
  reports[2] = report_of(2, hangs, sum(17), false);
  EXPECT_EQ(hang_of(reports)->ranks, std::vector<int>{2});
  reports[2].position->has_left = true;
  EXPECT_EQ(hang_of(reports), std::nullopt);
}

// Stages of a pipeline: the host of the second one has queued a message behind the kernel that does
// not end, and the first one waits for an earlier one.
TEST(Hang, a_message_that_was_queued_ahead_is_not_waited_for) {
  const Call receives{.op = "recv", .group = "pp", .ranks = {0, 1}, .sequence = 4, .peer = 1};
  const Call ahead{.op = "recv", .group = "pp", .ranks = {0, 1}, .sequence = 9, .peer = 0};
  const auto verdict =
      hang_of({report_of(0, hangs, receives, true), report_of(1, hangs, ahead, false)});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->ranks, std::vector<int>{1});
  EXPECT_EQ(hang_of({report_of(0, hangs, receives, true), report_of(1, hangs, ahead, true)}),
            std::nullopt);
}

TEST(Position, is_in_the_call_that_has_begun_and_not_in_one_that_was_queued_before) {
  FlightRecorder recorder(0);
  (void)recorder.scheduled({.group = "dp", .op = "all_reduce"});
  const int64_t begun = recorder.scheduled({.sequence = 3, .group = "pp", .op = "recv"});
  EXPECT_EQ(position_of(recorder).inside->op, "all_reduce");
  EXPECT_FALSE(position_of(recorder).has_begun);
  recorder.started(begun);
  EXPECT_EQ(position_of(recorder).inside->op, "recv");
  EXPECT_TRUE(position_of(recorder).has_begun);
}

TEST(Hang, a_call_that_all_have_entered_blames_none) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 4; ++rank) reports.push_back(report_of(rank, hangs, sum(17), true));
  EXPECT_EQ(hang_of(reports), std::nullopt);
}

// One rank saves, compiles or waits for data for 30 s; the others wait for it. Every heartbeat is
// judged.
TEST(Hang, a_long_save_compile_or_wait_for_data_is_never_a_hang) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() % 10000) / 10000;
  };
  int named = 0;
  for (int round = 0; round < 100; ++round) {
    const char* const phase = std::vector{"other", "compile", "data"}[random() % 3];
    const double step_seconds = uniform(0.01, 4);
    const auto busy = static_cast<size_t>(random() % 4);
    std::vector<MovingRank> ranks(4);
    double now = 1;
    for (MovingRank& rank : ranks) {
      now = 1;
      (void)train(rank, now, step_seconds, static_cast<int>(60 + 8 / step_seconds));
    }
    ranks[busy].phase = phase;
    const double end = now + 30;
    for (double at = now; at < end; at += uniform(0.2, 0.6)) {
      std::vector<RankReport> reports;
      for (int rank = 0; rank < 4; ++rank) {
        const bool is_busy = static_cast<size_t>(rank) == busy;
        reports.push_back(report_of(rank, ranks[static_cast<size_t>(rank)].beat(at),
                                    is_busy ? std::nullopt : std::optional(sum(17)), true));
      }
      if (hang_of(reports)) ++named;
    }
    // The same rank in a step is found.
    ranks[busy].phase = "step";
    now = end;
    const Motion motion = rest(ranks[busy], now, 5 * step_seconds + 10);
    EXPECT_TRUE(hang_of({report_of(0, motion, std::nullopt, false)})) << seed << " " << round;
  }
  EXPECT_EQ(named, 0) << seed;
}

TEST(Position, has_the_motion_of_its_rank) {
  RankPosition position{.rank = 1, .host = "host", .process = 7};
  EXPECT_EQ(position_from(to_text(position), 4), position);
  position.motion = hangs;
  EXPECT_EQ(position_from(to_text(position), 4), position);
  EXPECT_EQ(position_from(R"({"rank":0,"host":"h","process":1,"has_left":false,"reached":[],)"
                          R"("motion":{"phase":3,"still_s":1,"limit_s":2}})",
                          4),
            std::nullopt);
}

}  // namespace
}  // namespace trireme::comm
