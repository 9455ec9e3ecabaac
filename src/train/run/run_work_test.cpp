// SPDX-License-Identifier: Apache-2.0
#include "train/run/run_work.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::train {
namespace {

constexpr int64_t mib = int64_t{1} << 20;

config::Config hundred_steps() {
  config::Config c;
  c.training.steps = 100;
  c.training.seq_len = 10;
  c.checkpoint.interval = 20;
  c.checkpoint.keep_latest_k = 2;
  c.checkpoint.keep_every = 0;
  return c;
}

RunWork work_of_a_small_run() {
  return {.step_samples = 4,
          .training_samples = 1000,
          .held_out_samples = 50,
          .checkpoint_bytes = 12 * mib,
          .weights_bytes = 4 * mib,
          .free_bytes = 1000 * mib};
}

std::string text_of(const config::Config& c, const RunWork& work) {
  std::string text;
  for (const std::string& line : describe_work(c, work)) text += line + "\n";
  return text;
}

TEST(RunWork, disk_holds_what_is_kept_and_what_is_being_written) {
  config::Config c = hundred_steps();
  RunWork work = work_of_a_small_run();
  EXPECT_EQ(disk_bytes(c, work), 3 * 12 * mib + 4 * mib);
  c.training.steps = 500;  // one that is marked good, and one before it
  EXPECT_EQ(disk_bytes(c, work), 5 * 12 * mib + 4 * mib);
  c.checkpoint.keep_every = -1;  // one for each power of two from 16 to 256, and three
  EXPECT_EQ(disk_bytes(c, work), 13 * 12 * mib + 4 * mib);
  c = hundred_steps();
  c.checkpoint.keep_latest_k = 0;  // of steps 20, 40, 60, 80 and 100
  EXPECT_EQ(disk_bytes(c, work), 5 * 12 * mib + 4 * mib);
  c.checkpoint.interval = 0;
  c.checkpoint.export_interval = 30;  // steps 30, 60, 90 and the end
  EXPECT_EQ(disk_bytes(c, work), 4 * 12 * mib + 4 * 4 * mib);
  // A resumed run has its checkpoints already.
  c = hundred_steps();
  work.first_step = 61;
  work.checkpoints_before = 2;
  EXPECT_EQ(disk_bytes(c, work), 12 * mib + 4 * mib);
  c.checkpoint.keep_latest_k = 0;
  c.checkpoint.interval = -1;
  EXPECT_EQ(disk_bytes(c, work), -1);
  EXPECT_EQ(text_of(c, work).find("disk "), std::string::npos);
}

TEST(RunWork, warns_of_a_small_disk_and_of_much_repeated_data) {
  config::Config c = hundred_steps();
  c.job.dump_folder = "runs/default";
  RunWork work = work_of_a_small_run();
  EXPECT_EQ(text_of(c, work).find("warning"), std::string::npos) << text_of(c, work);
  work.free_bytes = 39 * mib;
  EXPECT_NE(text_of(c, work).find("warning: the disk of runs/default has too little space"),
            std::string::npos)
      << text_of(c, work);
  work.free_bytes = -1;
  work.training_samples = 99;
  EXPECT_NE(text_of(c, work).find("warning: the run reads its training data 4.0 times"),
            std::string::npos)
      << text_of(c, work);
  // Earlier attempts count.
  work = work_of_a_small_run();
  work.samples_before = 3700;
  EXPECT_NE(text_of(c, work).find("warning: the run reads its training data 4.1 times"),
            std::string::npos)
      << text_of(c, work);
}

TEST(RunWork, lists_when_it_saves) {
  config::Config c = hundred_steps();
  const RunWork work = work_of_a_small_run();
  const auto expect = [&](const std::string& part) {
    EXPECT_NE(text_of(c, work).find(part), std::string::npos) << text_of(c, work);
  };
  expect(
      "save      every 20 steps, after the last step and at a stop; 12.00 MiB each, the newest 2 "
      "kept, at most 36.00 MiB\n");
  c.checkpoint.keep_every = 50;
  expect("12.00 MiB each, the newest 2 and one of every 50 steps kept, at most 60.00 MiB\n");
  c.checkpoint.keep_every = -1;
  expect("the newest 2 and older ones by powers of two of age kept, at most 60.00 MiB\n");
  c.checkpoint.interval_seconds = 90;
  expect("save      every 20 steps, every 90 s, after the last step and at a stop;");
  c.checkpoint = {};
  expect("save      every 60 s or 100 times the cost of a save, after the last step");
  c.checkpoint.mean_failure_seconds = 36000;
  expect("save      for a failure every 36,000 s, after the last step");
}

TEST(RunWork, the_longest_run_has_a_header) {
  config::Config c = hundred_steps();
  c.training.steps = std::numeric_limits<int64_t>::max() / 2;
  c.checkpoint.keep_latest_k = 0;
  c.checkpoint.interval = 1;
  RunWork work = work_of_a_small_run();
  work.tokens_before = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(disk_bytes(c, work), std::numeric_limits<int64_t>::max());
  EXPECT_NE(text_of(c, work).find("warning: the disk"), std::string::npos);
}

}  // namespace
}  // namespace trireme::train
