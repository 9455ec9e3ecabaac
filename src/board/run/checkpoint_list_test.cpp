// SPDX-License-Identifier: Apache-2.0
// The checkpoints that the board lists, and the one that a restart would take.
#include "board/run/checkpoint_list.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/text/json.h"
#include "ckpt/disk/posix_disk.h"
#include "ckpt/generation/small_generation_test.h"
#include "ckpt/marks/mark_file.h"

namespace trireme::board {
namespace {

class CheckpointListTest : public testing::Test {
 protected:
  CheckpointListTest() {
    const auto disk = ckpt::posix_disk();
    std::filesystem::create_directories(folder());
    for (const int64_t step : {10, 20, 30}) ckpt::save_small(*disk, folder(), step);
  }
  ~CheckpointListTest() override { std::filesystem::remove_all(run_); }
  std::filesystem::path folder() const { return run_ / "checkpoint"; }
  void mark(int64_t step, ckpt::Mark mark, const std::string& detector) const {
    ckpt::add_marks(folder(), {ckpt::MarkLine{.of = {step, 0},
                                              .mark = mark,
                                              .detector = detector,
                                              .evidence = "why " + std::to_string(step)}});
  }
  int64_t target() const {
    const CheckpointList list = read_checkpoints(run_, nullptr);
    return list.rollback_target() == nullptr ? -1 : list.rollback_target()->step;
  }

  const std::filesystem::path run_ =
      std::filesystem::temp_directory_path() / ("trireme-list-" + std::to_string(::getpid()));
};

TEST_F(CheckpointListTest, a_restart_takes_the_newest_that_is_complete_and_not_bad) {
  EXPECT_EQ(target(), 30);
  std::filesystem::remove(folder() / "step-00000030" / "data-00000");
  EXPECT_EQ(target(), 20);
  mark(20, ckpt::Mark::bad, "hand");
  EXPECT_EQ(target(), 10);
  const base::Json json = to_json(read_checkpoints(run_, nullptr), 0).at("checkpoints");
  EXPECT_EQ(json.at(1).at("mark"), "bad");
  EXPECT_EQ(json.at(1).at("why"), "why 20");
  EXPECT_EQ(json.at(2).at("mark"), "");
  EXPECT_EQ(json.at(2).at("is_rollback_target"), true);
  mark(10, ckpt::Mark::bad, "hand");
  EXPECT_EQ(target(), -1);
}

TEST_F(CheckpointListTest, after_a_divergence_it_takes_the_newest_good_one) {
  mark(10, ckpt::Mark::good, "steps");
  mark(30, ckpt::Mark::bad, ckpt::divergence_detector);
  EXPECT_EQ(target(), 10);
}

TEST_F(CheckpointListTest, damaged_marks_hide_no_checkpoint) {
  std::ofstream(folder() / ckpt::marks_name) << "damaged\n";
  EXPECT_EQ(target(), 30);
}

}  // namespace
}  // namespace trireme::board
