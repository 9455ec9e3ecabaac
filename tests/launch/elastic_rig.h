// SPDX-License-Identifier: Apache-2.0
// Shared by tests of jobs whose lost ranks are replaced: a small run of four ranks, whose weights
// do not depend on layouts or losses.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/launch/launch_rig.h"

namespace trireme::tests {

Words together(Words words, const Words& more);

class ElasticTest : public testing::Test {
 protected:
  static inline const std::string weights_file = "weights/final/model.safetensors";

  void SetUp() override;

  Words settings(int steps, const std::string& folder) const;
  // The weights of a run without a loss, the same for all layouts here.
  std::string quiet_weights(int steps);
  std::unique_ptr<Running> launch(int steps, const Words& more) const;
  // Returns the process of a rank in an epoch, by processes.json; 0: there is none yet.
  pid_t process_of(int rank, int64_t epoch, const std::string& list = "processes.json") const;
  // Returns the "supervisor" or "guardian" of such a list; 0: there is none yet.
  pid_t launcher_part(const std::string& name, const std::string& list = "processes.json") const;
  bool has_step(int step) const;
  // Sends a signal to a rank when the run has finished a step in this epoch.
  void disturb(Running& running, int number, int rank, int step, int64_t epoch);
  // Every step has one loss, however often it was computed.
  void expect_each_step_once(int steps) const;

  Scratch scratch_;
  Words layout_ = {"--parallelism.data_parallel_replicate_degree=4"};
};

}  // namespace trireme::tests
