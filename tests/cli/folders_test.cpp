// SPDX-License-Identifier: Apache-2.0
// Runs in folders that contain other files.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

TEST(SharedFolders, any_number_of_checkpoints_may_be_kept) {
  for (const char* keep : {"2147483648", "4294967297", "1000000000000"}) {
    const Scratch s;
    write_tiny(s);
    const Outcome outcome = trireme(s, {"train", "tiny_run.toml", "--checkpoint.interval=1",
                                        std::string("--checkpoint.keep_latest_k=") + keep});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    for (const char* name : {"step-00000001", "step-00000002", "step-00000003", "step-00000004"}) {
      EXPECT_TRUE(s.has(std::string("run/checkpoint/") + name)) << keep << " " << name;
    }
  }
}

TEST(SharedFolders, an_archived_checkpoint_survives_the_run_that_drops_its_link) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml", "--checkpoint.interval=2"}).exit_code, 0);
  fs::create_directory(s.at("archive"));
  fs::rename(s.at("run/checkpoint/step-00000002"), s.at("archive/step-00000002"));
  fs::create_directory_symlink(s.at("archive/step-00000002"), s.at("run/checkpoint/step-00000002"));
  s.write("precious/thesis.txt", "x");
  fs::create_directory_symlink(s.at("precious"), s.at("run/checkpoint/step-00000001.tmp-0"));
  const Tree archived = s.tree("archive");
  for (const char* steps : {"--training.steps=8", "--training.steps=10"}) {
    const Outcome outcome = trireme(
        s, {"train", "tiny_run.toml", "--checkpoint.interval=2", "--resume", "auto", steps});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("not removed"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(s.tree("archive"), archived);
  EXPECT_TRUE(s.has("precious/thesis.txt"));
  EXPECT_FALSE(fs::is_symlink(s.at("run/checkpoint/step-00000002")));
  EXPECT_FALSE(fs::is_symlink(s.at("run/checkpoint/step-00000001.tmp-0")));
}

TEST(SharedFolders, pruning_of_weights_leaves_files_of_others) {
  const Scratch s;
  write_tiny(s);
  s.write("models/step-0-notes/thesis.txt", "precious");
  s.write("models/step-00000002-handmade/thesis.txt", "precious");
  const Outcome outcome =
      trireme(s, {"train", "tiny_run.toml", "--training.steps=6", "--checkpoint.export_interval=1",
                  "--checkpoint.export_folder=" + s.at("models").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(s.has("models/step-0-notes/thesis.txt"));
  EXPECT_TRUE(s.has("models/step-00000002-handmade/thesis.txt"));
  EXPECT_FALSE(s.has("models/step-00000003"));
  EXPECT_TRUE(s.has("models/step-00000004"));
  EXPECT_TRUE(s.has("models/step-00000005"));
}

TEST(SharedFolders, checkpoints_and_weights_do_not_share_one) {
  for (const char* name : {"./checkpoint", "checkpoint/", "x/../checkpoint", "checkpoint/."}) {
    const Scratch s;
    write_tiny(s);
    const Outcome outcome =
        trireme(s, {"train", "tiny_run.toml", std::string("--checkpoint.export_folder=") + name});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("must not be the folder of checkpoints"), std::string::npos)
        << outcome.err;
    EXPECT_FALSE(s.has("run"));
  }
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml", "--checkpoint.export_interval=1"}).exit_code, 0);
  const Outcome outcome =
      trireme(s, {"train", "tiny_run.toml", "--overwrite", "--checkpoint.folder=weights",
                  "--checkpoint.export_folder=other", "--checkpoint.interval=1"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("are exported weights"), std::string::npos) << outcome.err;
  EXPECT_TRUE(s.has("run/weights/step-00000003"));
}

}  // namespace
}  // namespace trireme::tests
