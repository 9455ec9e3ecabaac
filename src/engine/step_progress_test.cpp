// SPDX-License-Identifier: Apache-2.0
#include "engine/step_progress.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>

#include "device/cpu/cpu_device.h"
#include "kernels/table.h"

namespace trireme::engine {
namespace {

using Count = base::QueuedWork::Count;

void expect_count(const Count& found, int64_t queued, int64_t done, int64_t steps) {
  EXPECT_EQ(found.queued, queued);
  EXPECT_EQ(found.done, done);
  EXPECT_EQ(found.steps, steps);
}

class StepProgressTest : public testing::Test {
 protected:
  Count now() const { return base::RankActivity::current().work().value(); }
  // The stream's thread waits for the gate.
  void close_gate() {
    gate_.lock();
    stream_->call_host([this] { const std::scoped_lock lock(gate_); });
  }

  base::RankActivityScope scope_{0};
  device::CpuDevice device_{kernels::null_kernels(),
                            {.threads = 1, .streams = device::StreamMode::worker_threads}};
  std::unique_ptr<device::Stream> stream_ = device_.make_stream("compute");
  std::mutex gate_;
};

TEST_F(StepProgressTest, shows_what_the_device_has_done) {
  StepProgress progress(*stream_);
  expect_count(now(), 0, 0, 0);
  close_gate();
  progress.add_piece();
  progress.add_piece();
  progress.end_step();
  expect_count(now(), 3, 0, 0);
  EXPECT_TRUE(now().is_pending());
  gate_.unlock();
  stream_->synchronize();
  expect_count(now(), 3, 3, 1);
  EXPECT_FALSE(now().is_pending());
}

TEST_F(StepProgressTest, counts_every_launch_of_a_captured_step) {
  StepProgress progress(*stream_);
  progress.end_step();
  const auto graph = stream_->capture([&] {
    progress.add_piece();
    progress.end_step();
  });
  ASSERT_TRUE(graph);
  stream_->synchronize();
  expect_count(now(), 1, 1, 1);  // nothing is pending because of the capture
  for (int64_t launch = 1; launch <= 3; ++launch) {
    close_gate();
    gate_.unlock();
    stream_->launch(*graph);
    progress.launched();
    EXPECT_EQ(now().queued, 1 + 2 * launch);
    stream_->synchronize();
    expect_count(now(), 1 + 2 * launch, 1 + 2 * launch, 1 + launch);
  }
  // A step by its kernels comes between.
  progress.end_step();
  stream_->synchronize();
  expect_count(now(), 8, 8, 5);
}

TEST_F(StepProgressTest, forgets_a_capture_that_was_given_up) {
  StepProgress progress(*stream_);
  EXPECT_THROW((void)stream_->capture([&] {
    progress.add_piece();
    throw std::runtime_error("given up");
  }),
               std::runtime_error);
  progress.drop_captured();
  progress.launched();
  expect_count(now(), 0, 0, 0);
}

TEST_F(StepProgressTest, an_older_one_does_not_remove_its_successor) {
  auto first = std::make_unique<StepProgress>(*stream_);
  {
    StepProgress second(*stream_);
    first.reset();
    second.end_step();
    stream_->synchronize();
    expect_count(now(), 1, 1, 1);
  }
  EXPECT_FALSE(base::RankActivity::current().work());
}

}  // namespace
}  // namespace trireme::engine
