// SPDX-License-Identifier: Apache-2.0
#include "device/wait_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <thread>

#include "device/cpu/cpu_device.h"
#include "device/null/null_device.h"

namespace trireme::device {
namespace {

// No work of these tests is an op.
const kernels::Kernels& unused_kernels() {
  alignas(std::max_align_t) static const std::byte memory[8192] = {};
  return *reinterpret_cast<const kernels::Kernels*>(memory);
}

using Spans = std::vector<WaitWatch::Span>;

class WaitWatchTest : public testing::TestWithParam<StreamMode> {
 protected:
  WaitWatchTest() { stream_->set_waits(&watch_); }

  CpuDevice device_{unused_kernels(), {.streams = GetParam()}};
  std::unique_ptr<Stream> stream_ = device_.make_stream("compute");
  WaitWatch watch_{*stream_};
};

TEST_P(WaitWatchTest, spans_are_marked_while_the_watch_is_open) {
  Spans spans;
  { const WaitSpan closed(*stream_, Wait::tp); }
  watch_.open(spans);
  {
    const WaitSpan outer(*stream_, Wait::data);
    stream_->call_host([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    const WaitSpan inner(*stream_, Wait::tp);  // within the outer one
  }
  { const WaitSpan of_no_kind(*stream_, Wait::count); }
  wait_for(*stream_, {}, Wait::cp);  // an event that counts as reached
  wait_for(*stream_, stream_->record_timed(), Wait::pp);
  watch_.close();
  { const WaitSpan closed(*stream_, Wait::tp); }
  stream_->synchronize();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].wait, Wait::data);
  EXPECT_EQ(spans[1].wait, Wait::pp);
  EXPECT_GE(stream_->seconds_between(spans[0].begin, spans[0].end), 0.005);
  EXPECT_GE(stream_->seconds_between(spans[0].end, spans[1].begin), 0);
}

TEST_P(WaitWatchTest, span_of_work_that_throws_ends) {
  Spans spans;
  watch_.open(spans);
  try {
    const WaitSpan span(*stream_, Wait::data);
    throw std::runtime_error("a peer is lost");
  } catch (const std::runtime_error&) {
    // Thrown above.
  }
  { const WaitSpan next(*stream_, Wait::tp); }
  stream_->synchronize();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_TRUE(stream_->is_reached(spans[0].end));
  EXPECT_EQ(spans[1].wait, Wait::tp);
}

TEST_P(WaitWatchTest, events_are_reused) {
  std::set<const Event::State*> states;
  for (int i = 0; i < 10; ++i) {
    Event begin = watch_.record(), end = watch_.record();
    stream_->synchronize();
    EXPECT_TRUE(stream_->is_reached(begin));
    EXPECT_GE(stream_->seconds_between(begin, end), 0);
    states.insert({begin.state(), end.state()});
    watch_.give_back(std::move(begin));
    watch_.give_back(std::move(end));
  }
  EXPECT_EQ(states.size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Streams, WaitWatchTest,
                         testing::Values(StreamMode::inline_calls, StreamMode::worker_threads));

TEST(WaitWatchEventsTest, reused_event_is_reached_again_after_the_work_before_it) {
  CpuDevice device(unused_kernels(), {.streams = StreamMode::worker_threads});
  const auto stream = device.make_stream("compute");
  Event event = stream->record_timed();
  stream->synchronize();
  ASSERT_TRUE(stream->is_reached(event));
  std::atomic<bool> goes_on = false;
  stream->call_host([&goes_on] {
    while (!goes_on) std::this_thread::yield();
  });
  stream->record_timed(event);
  EXPECT_FALSE(stream->is_reached(event));
  goes_on = true;
  stream->synchronize();
  EXPECT_TRUE(stream->is_reached(event));
}

TEST(WaitWatchEventsTest, null_device_marks_nothing_that_takes_time) {
  NullDevice device(unused_kernels());
  const auto stream = device.make_stream("compute");
  WaitWatch watch(*stream);
  Event event = watch.record();
  EXPECT_TRUE(stream->is_reached(event));
  EXPECT_EQ(stream->seconds_between(event, event), 0);
  watch.give_back(event);
}

}  // namespace
}  // namespace trireme::device
