// SPDX-License-Identifier: Apache-2.0
// What a run writes to marks.jsonl, beside marks by hand, after it went back, and under its fence.
#include "train/checkpointing/marks/run_marks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/small_generation_test.h"
#include "ckpt/marks/mark_file.h"

namespace trireme::train {
namespace {

class RunMarksTest : public testing::Test {
 protected:
  RunMarksTest() { std::filesystem::create_directories(root_); }
  ~RunMarksTest() override { std::filesystem::remove_all(root_); }

  RunMarks marks(const ckpt::Guard& guard = [](const auto& write) { write(); }) {
    return RunMarks({.folder = root_, .good_after = 10, .guard = guard, .log = [](const auto&) {}});
  }
  void save(int64_t step, int64_t epoch) {
    const ckpt::SmallGeneration small;
    const ckpt::Writer writer{.run = "run1", .epoch = epoch};
    const ckpt::Draft draft = ckpt::begin_generation(*disk_, root_, step, writer);
    ckpt::Manifest manifest = ckpt::manifest_of_small(step, small);
    manifest.writer = writer;
    for (int rank = 0; rank < small.ranks; ++rank) {
      manifest.files.push_back(ckpt::write_small(*disk_, draft, rank, small));
    }
    ckpt::commit(*disk_, draft, manifest);
  }
  std::string marked() {
    std::string text;
    for (const auto& one :
         ckpt::marked_generations(*disk_, root_, ckpt::read_marks(*disk_, root_))) {
      text += std::to_string(one.id.step) + " ";
      text += one.mark ? std::string(ckpt::name_of(one.mark->mark)) : "-";
      text += "\n";
    }
    return text;
  }
  static void steps(RunMarks& marks, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) marks.end_step(step, {});
  }

  const std::filesystem::path root_ =
      std::filesystem::temp_directory_path() / ("trireme-run-marks-" + std::to_string(::getpid()));
  const std::unique_ptr<ckpt::Disk> disk_ = ckpt::posix_disk();
};

TEST_F(RunMarksTest, checkpoints_of_earlier_epochs_become_good_too) {
  save(10, 1);
  RunMarks first = marks();
  first.begin(1, -1);
  EXPECT_FALSE(std::filesystem::exists(root_ / ckpt::marks_name)) << "there is nothing to tell";
  first.saved(10);
  steps(first, 11, 15);
  RunMarks second = marks();
  second.begin(2, 10);
  save(15, 2);
  second.saved(15);
  steps(second, 11, 20);
  EXPECT_EQ(marked(), "15 -\n10 good\n");
}

TEST_F(RunMarksTest, a_mark_by_hand_stays) {
  save(10, 1);
  save(15, 1);
  RunMarks run = marks();
  run.begin(1, -1);
  ckpt::add_marks(root_,
                  {ckpt::MarkLine{.of = {10, 1}, .mark = ckpt::Mark::bad, .detector = "hand"}});
  run.saved(10);
  run.saved(15);
  steps(run, 11, 40);
  EXPECT_EQ(marked(), "15 bad\n10 bad\n");
}

TEST_F(RunMarksTest, a_divergence_covers_every_epoch_and_what_becomes_durable_later) {
  save(10, 1);
  save(20, 1);
  save(30, 2);
  ckpt::add_marks(root_, {ckpt::MarkLine{.of = {20, 1}, .mark = ckpt::Mark::good}});
  RunMarks run = marks();
  run.begin(3, 30);
  run.diverged(20, "the loss left its range");
  save(40, 3);
  EXPECT_EQ(marked(), "40 bad\n30 bad\n20 bad\n10 -\n");
  EXPECT_TRUE(ckpt::ended_in_divergence(ckpt::read_marks(*disk_, root_)));
  // The next attempt goes back to step 10, and saves step 20 again.
  (void)ckpt::set_aside_newer(*disk_, root_, 10);
  run.begin(4, 10);
  save(20, 4);
  run.saved(20);
  EXPECT_EQ(marked(), "20 -\n10 -\n");
  EXPECT_FALSE(ckpt::ended_in_divergence(ckpt::read_marks(*disk_, root_)));
}

TEST_F(RunMarksTest, a_fenced_run_writes_nothing_and_a_full_disk_stops_nothing) {
  save(10, 1);
  RunMarks fenced = marks([](const auto&) { throw base::Fenced("taken over"); });
  fenced.begin(1, -1);
  fenced.saved(10);
  steps(fenced, 11, 19);
  EXPECT_THROW(fenced.end_step(20, {}), base::Fenced);
  RunMarks full = marks([](const auto&) { throw base::IoError("no space"); });
  full.begin(1, -1);
  full.saved(10);
  steps(full, 11, 30);
  EXPECT_EQ(marked(), "10 -\n");
}

TEST_F(RunMarksTest, a_damaged_file_is_named_at_the_start_and_training_goes_on) {
  save(10, 1);
  RunMarks run = marks();
  run.begin(1, -1);
  std::ofstream(root_ / ckpt::marks_name) << "damaged\n";
  run.saved(10);
  steps(run, 11, 30);
  EXPECT_THROW(run.begin(2, 10), base::IoError);
}

}  // namespace
}  // namespace trireme::train
