// SPDX-License-Identifier: Apache-2.0
// A full disk stops saving, not training, and every failed save is reported.
#include <gtest/gtest.h>

#include "tests/cli/resume/resume_rig.h"

namespace trireme::tests {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// No file may grow: every save fails with a message, and training continues.
TEST(FullDisk, stops_saving_and_not_training) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome =
      trireme(s, train_words(6, {"--checkpoint.interval=2", "--checkpoint.export_dtype=bf16"}),
              {.max_file_bytes = 60'000});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_EQ(count(outcome.err, "checkpoint of step "), 3) << outcome.err;
  EXPECT_NE(outcome.err.find("step:  6"), std::string::npos) << outcome.err;
  for (const auto& [name, bytes] : s.tree("run/checkpoint")) ADD_FAILURE() << name;
}

// Runs a shell command in a mount namespace, where it may mount file systems.
Outcome run_apart(const Scratch& s, const std::string& line) {
  s.write("line.sh", line + "\n");
  return Running(s.path(),
                 {"/bin/sh", "-c", "exec unshare --user --map-root-user --mount sh line.sh"})
      .wait();
}

// Runs six steps and saves every second one to a file system of the size in `options`.
Outcome train_on_small_disk(const Scratch& s, const std::string& options, const Words& layout) {
  write_tiny(s);
  std::filesystem::create_directory(s.at("small"));
  Words words = {"--checkpoint.interval=2", "--checkpoint.folder=" + s.at("small/c").string()};
  words.insert(words.end(), layout.begin(), layout.end());
  std::string line = "mount -t tmpfs -o " + options + " none small && exec";
  for (const std::string& word : trireme_command(train_words(6, words))) line += " '" + word + "'";
  return run_apart(s, line);
}

// No byte fits; the first file does not; some do and the index does not; no name is left for the
// first folder.
TEST(FullDisk, of_any_size_stops_saving_and_not_training) {
  {
    const Scratch s;
    const Outcome can_mount = run_apart(s, "mount -t tmpfs -o size=1m none .");
    if (can_mount.exit_code != 0) {
      GTEST_SKIP() << "no file system can be mounted here: " << can_mount.err;
    }
  }
  for (const Words& layout : {Words{}, Words{zero + "2", stage + "1"}}) {
    for (const std::string options :
         {"size=4k", "size=64k", "size=200k", "nr_inodes=1,size=8m", "nr_inodes=3,size=8m"}) {
      const Scratch s;
      const Outcome outcome = train_on_small_disk(s, options, layout);
      EXPECT_EQ(outcome.exit_code, 1) << options << outcome.err;
      EXPECT_EQ(outcome.out.find("done:"), std::string::npos) << outcome.out;
      const std::string last_line =
          "error: step 6 is the last one, and its checkpoint was not saved";
      EXPECT_GT(outcome.err.find(last_line), outcome.err.find("step:  6")) << outcome.err;
      EXPECT_NE(outcome.err.find("there is no checkpoint to resume from"), std::string::npos);
      EXPECT_EQ(count(s.read("run/events.jsonl"), "\"save_failed\""), 3) << options;
      EXPECT_EQ(count(s.read("run/events.jsonl"), "\"reason\":\"failed\""), 1) << options;
      EXPECT_GE(count(outcome.err, "not saved"), 3) << options << outcome.err;
      for (const char* step : {"2", "4", "6"}) {
        EXPECT_GE(count(outcome.err, std::string("checkpoint of step ") + step + " not saved"), 1)
            << options << outcome.err;
      }
      EXPECT_NE(outcome.err.find("No space left on device"), std::string::npos) << outcome.err;
      EXPECT_TRUE(s.read(final_weights) == straight(6)) << options;
    }
  }
  // With enough space nothing is reported.
  const Scratch s;
  const Outcome outcome = train_on_small_disk(s, "size=64m", {});
  EXPECT_EQ(count(outcome.err, "not saved"), 0) << outcome.err;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

}  // namespace
}  // namespace trireme::tests
