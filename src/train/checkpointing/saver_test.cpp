// SPDX-License-Identifier: Apache-2.0
// Folders that checkpoints, weights and TensorBoard events would share.
#include "train/checkpointing/saver.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

class SaverFoldersTest : public testing::Test {
 protected:
  SaverFoldersTest()
      : run_(fs::temp_directory_path() / ("trireme_saver_" + std::to_string(::getpid()))) {
    fs::remove_all(run_);
    fs::create_directories(run_);
    config_.job.dump_folder = run_.string();
  }
  ~SaverFoldersTest() override {
    std::error_code ignored;
    fs::remove_all(run_, ignored);
  }

  // Returns the message of the refusal; empty: the folders are accepted.
  std::string refusal() const {
    try {
      check_own_folders(config_);
      return "";
    } catch (const base::ConfigError& error) {
      return error.what();
    }
  }

  const fs::path run_;
  config::Config config_;
};

TEST_F(SaverFoldersTest, links_to_one_folder_are_refused) {
  EXPECT_EQ(refusal(), "");
  fs::create_directory(run_ / "checkpoint");
  fs::create_directory_symlink("checkpoint", run_ / "weights");
  EXPECT_NE(refusal().find("checkpoint.folder and checkpoint.export_folder both resolve to"),
            std::string::npos)
      << refusal();
  config_.checkpoint.enable = false;
  EXPECT_EQ(refusal(), "");
}

TEST_F(SaverFoldersTest, events_are_compared_where_they_are_written) {
  fs::create_directory(run_ / "weights");
  fs::create_directory_symlink("weights", run_ / "tb");
  config_.metrics.enable_tensorboard = false;
  EXPECT_EQ(refusal(), "");
  config_.metrics.enable_tensorboard = true;
  EXPECT_NE(refusal().find("metrics.save_tb_folder"), std::string::npos) << refusal();
}

TEST_F(SaverFoldersTest, a_folder_of_weights_that_holds_checkpoints_is_refused) {
  fs::create_directories(run_ / "weights" / "step-00000100");
  EXPECT_EQ(refusal(), "");
  std::ofstream(run_ / "weights" / "step-00000100" / "manifest") << "x";
  EXPECT_NE(refusal().find("step-00000100 is a checkpoint"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace trireme::train
