// SPDX-License-Identifier: Apache-2.0
// Files that are not what they were, or not files, and limits of the system: each ends with one
// message, and none in a crash or a wait.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/cli/resume_rig.h"

namespace trireme::tests {
namespace {

namespace fs = std::filesystem;

TEST(Limits, data_that_is_cut_off_while_training_is_named) {
  for (const char* ranks : {"1", "2"}) {  // as threads
    const Scratch s;
    write_tiny(s);
    Running running(s.path(),
                    trireme_command({"train", "tiny_run.toml", "--training.steps=100000000",
                                     "--metrics.log_freq=1000000", dp + ranks}));
    ASSERT_TRUE(running.wait_for([&] {
      return s.has("run/metrics.jsonl") && fs::file_size(s.at("run/metrics.jsonl")) > 0;
    })) << running.err();
    fs::resize_file(s.at("text.txt"), 0);
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_NE(outcome.err.find("error: text.txt: byte "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("was truncated while it was in use"), std::string::npos)
        << outcome.err;
  }
}

TEST(Limits, a_bus_error_that_is_no_file_keeps_its_default_action) {
  const Scratch s;
  write_tiny(s);
  Running running(s.path(), trireme_command({"train", "tiny_run.toml", "--training.steps=100000000",
                                             "--metrics.log_freq=1000000"}));
  ASSERT_TRUE(running.wait_for([&] { return s.has("run/metrics.jsonl"); })) << running.err();
  running.signal(SIGBUS);
  EXPECT_EQ(running.wait().exit_code, 128 + SIGBUS);
}

// Each degree is legal, and their product is above 2^31.
TEST(Limits, more_ranks_than_threads_are_refused) {
  const Scratch s;
  write_tiny(s);
  s.write("wide.toml",
          "family = \"llama\"\nlayers = 1\nhidden = 65536\nheads = 32768\nffn = 32768\n"
          "vocab = 1048576\nmax_seq = 32\n");
  const Outcome outcome = trireme(
      s, {"train", "tiny_run.toml", "--model.name=wide.toml", "--training.local_batch_size=1",
          "--training.global_batch_size=65536", "--parallelism.logical_dp=65536", dp + "65536",
          "--parallelism.tensor_parallel_degree=32768"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("multiply to 2147483648 ranks"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace trireme::tests
