// SPDX-License-Identifier: Apache-2.0
#include "train/run/run_position.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(RunPosition, a_run_begins_at_step_1_and_continues_after_its_checkpoint) {
  EXPECT_EQ(position_after({}, 0), (RunPosition{.first_step = 1}));
  const Resumed resumed{.step = 10, .samples = 80, .tokens = 800, .writer = {}};
  EXPECT_EQ(
      position_after(resumed, 80),
      (RunPosition{.first_step = 11, .shift = 0, .samples_before = 80, .tokens_before = 800}));
}

TEST(RunPosition, another_batch_continues_with_the_next_sample) {
  const Resumed resumed{.step = 10, .samples = 80, .tokens = 800, .writer = {}};
  for (const int64_t step_samples : {4, 8, 12}) {
    const RunPosition position = position_after(resumed, 10 * step_samples);
    EXPECT_EQ((position.first_step - 1) * step_samples + position.shift, 80) << step_samples;
  }
}

}  // namespace
}  // namespace trireme::train
