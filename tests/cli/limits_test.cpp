// SPDX-License-Identifier: Apache-2.0
// Files that are not what they were, or not files, and limits of the system: each ends with one
// message, and none in a crash or a wait.
#include <gtest/gtest.h>

#include "tests/cli/resume_rig.h"

namespace trireme::tests {
namespace {

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
