// SPDX-License-Identifier: Apache-2.0
#include "train/run/state/recovery_times.h"

#include <gtest/gtest.h>

#include <fstream>

#include "obs/files/event_log.h"
#include "obs/scratch_folder_test.h"

namespace trireme::train {
namespace {

double sum_of(const RecoveryTimes& times) {
  double sum = 0;
  for (const auto& [name, seconds] : parts_of(times)) sum += seconds;
  return sum;
}

TEST(RecoveryTimes, parts_follow_each_other_and_sum_to_the_whole) {
  const std::vector<EpochMarks> marks = {
      {.left_at = 101.5, .step = 40}, {.left_at = 102, .up_at = 90, .step = 39}, {.up_at = 102.5}};
  const EpochEntry entry = epoch_entry(marks, 104, 108);
  EXPECT_EQ(entry.reached, 40);
  const RecoveryTimes times = recovery_times({.lost_at = 100, .verdict_at = 101}, entry, 116);
  EXPECT_EQ(times.detect, 1);
  EXPECT_EQ(times.abort, 1);
  EXPECT_EQ(times.reform, 2);
  EXPECT_EQ(times.restore, 4);
  EXPECT_EQ(times.repeat, 8);
  EXPECT_EQ(times.start, 1.5);  // of the process that was new in this epoch
  EXPECT_EQ(times.all, 16);
  EXPECT_EQ(to_text(times),
            "16.00 s: detect 1.00, abort 1.00, reform 2.00, restore 4.00, repeat 8.00");
}

TEST(RecoveryTimes, clocks_that_differ_make_no_part_negative) {
  // All processes are new, and the host of the launcher is ahead.
  const EpochEntry entry = epoch_entry(std::vector<EpochMarks>{{.up_at = 99}}, 100.5, 103);
  const RecoveryTimes times = recovery_times({.lost_at = 100, .verdict_at = 102}, entry, 104);
  EXPECT_EQ(times.detect, 2);
  EXPECT_EQ(times.abort, 0);
  EXPECT_EQ(times.reform, 0);
  EXPECT_EQ(times.start, 0);
  EXPECT_EQ(times.restore, 1);
  EXPECT_EQ(sum_of(times), times.all);
  EXPECT_EQ(times.all, 4);
}

TEST(RecoveryTimes, the_loss_is_that_of_the_epoch_also_in_a_long_record) {
  const obs::ScratchFolder folder;
  EXPECT_FALSE(loss_of_epoch(folder.path(), 0));
  obs::EventLog log(folder.path());
  const auto add = [&](double time, int64_t epoch, int rank) {
    obs::Event event;
    event.time = time;
    event.kind = obs::EventKind::verdict;
    event.data = {{"job_epoch", epoch}, {"lost_at", time - 1}, {"ranks", {rank}}};
    log.add(event);
    event.data = {{"signal", 9}};  // by a rank
    log.add(event);
  };
  for (int epoch = 0; epoch < 1000; ++epoch) add(100 + epoch, epoch, epoch % 7);
  add(2000, 999, 5);  // the last start of the job has the same epoch
  const std::optional<Loss> loss = loss_of_epoch(folder.path(), 999);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->lost_at, 1999);
  EXPECT_EQ(loss->verdict_at, 2000);
  EXPECT_EQ(loss->ranks, std::vector<int>{5});
  EXPECT_TRUE(loss_of_epoch(folder.path(), 998));
  EXPECT_FALSE(loss_of_epoch(folder.path(), 1000));
}

}  // namespace
}  // namespace trireme::train
