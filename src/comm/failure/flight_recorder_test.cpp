// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/flight_recorder.h"

#include <gtest/gtest.h>

#include "base/text/json.h"
#include "comm/failure/flight_record.h"
#include "comm/failure/position.h"
#include "comm/world/rank_test.h"

namespace trireme::comm {
namespace {

using State = FlightRecorder::State;

TEST(FlightRecorder, keeps_the_last_calls_that_have_begun_and_drops_older_ones) {
  FlightRecorder recorder(0, 3);
  for (int i = 0; i < 5; ++i) recorder.completed(recorder.scheduled({.sequence = i}));
  recorder.started(recorder.scheduled({.sequence = 5}));
  recorder.completed(0);  // is not kept any more
  const auto entries = recorder.entries();
  ASSERT_EQ(entries.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(entries[i].sequence, static_cast<int64_t>(3 + i));
  EXPECT_EQ(entries[1].state, State::completed);
  EXPECT_EQ(entries[2].state, State::started);
  EXPECT_EQ(recorder.last_completed()->sequence, 4);
  EXPECT_FALSE(FlightRecorder(0).last_completed());
}

// Otherwise nothing would be known about the call that a rank is in once its host is far ahead.
TEST(FlightRecorder, calls_that_wait_for_the_device_drop_none_that_have_begun) {
  FlightRecorder recorder(0, 3);
  recorder.completed(recorder.scheduled({.sequence = 0, .group = "dp", .op = "all_reduce"}));
  const int64_t current = recorder.scheduled({.sequence = 1, .group = "dp", .op = "all_reduce"});
  recorder.started(current);
  for (int i = 2; i < 100; ++i) {
    recorder.scheduled({.sequence = i, .group = "dp", .op = "all_reduce"});
  }
  const RankPosition position = position_of(recorder);
  ASSERT_TRUE(position.inside && position.finished);
  EXPECT_EQ(position.inside->sequence, 1);
  EXPECT_EQ(position.finished->sequence, 0);
  ASSERT_EQ(position.reached.size(), 1U);
  EXPECT_EQ(position.reached[0].sequence, 1);
  // The device goes on with those that wait.
  recorder.completed(current);
  for (int64_t id = current + 1; id < 50; ++id) recorder.completed(id);
  EXPECT_EQ(recorder.entries().front().sequence, 47);
  EXPECT_EQ(position_of(recorder).inside->sequence, 50);
}

TEST(FlightRecorder, a_host_that_is_very_far_ahead_drops_the_oldest) {
  FlightRecorder recorder(0, 3);
  for (int i = 0; i < 1000; ++i) recorder.scheduled({.sequence = i});
  const auto entries = recorder.entries();
  EXPECT_EQ(entries.size(), 3U * 64);
  EXPECT_EQ(entries.back().sequence, 999);
}

// What the host queues is no progress of the device.
TEST(FlightRecorder, counts_what_is_scheduled_apart_from_what_has_begun) {
  FlightRecorder recorder(0);
  const int64_t id = recorder.scheduled({});
  EXPECT_EQ(recorder.scheduled_calls(), 1U);
  EXPECT_EQ(recorder.progress(), 0U);
  recorder.started(id);
  recorder.completed(id);
  EXPECT_EQ(recorder.scheduled_calls(), 1U);
  EXPECT_EQ(recorder.progress(), 2U);
}

TEST(FlightRecorder, has_the_keys_that_the_tools_read) {
  FlightRecorder recorder(5);
  const std::vector<int> ranks = {1, 5};
  const FlightRecorder::Entry entry = {.sequence = 7,
                                       .group = "tp",
                                       .ranks = ranks,
                                       .op = "all_gather",
                                       .dtype = "bf16",
                                       .elements = 4,
                                       .out_elements = 8,
                                       .bytes = 8,
                                       .deadline_s = 2};
  recorder.completed(recorder.scheduled(entry));
  recorder.started(recorder.scheduled(
      {.sequence = 2, .group = "tp", .ranks = ranks, .op = "recv", .dtype = "f32", .peer = 1}));
  const base::Json json = recorder.to_json();
  const std::string number = group_number("tp", ranks);
  EXPECT_EQ(json["version"], "2.10");
  EXPECT_EQ(json["pg_config"][number]["name"], number);
  EXPECT_EQ(json["pg_config"][number]["desc"], "tp");
  EXPECT_EQ(json["pg_config"][number]["ranks"], "[1, 5]");
  EXPECT_EQ(json["pg_status"][number]["last_completed_collective"], 7);
  const base::Json& gather = json["entries"][0];
  EXPECT_EQ(gather["profiling_name"], "nccl:_all_gather_base");
  EXPECT_EQ(gather["process_group"], (base::Json{number, "tp"}));
  EXPECT_EQ(gather["pg_id"], std::stoll(number));
  EXPECT_EQ(gather["input_dtypes"], base::Json::parse(R"(["BFloat16"])"));
  EXPECT_EQ(gather["collective_seq_id"], 7);
  EXPECT_EQ(gather["input_sizes"], base::Json::parse("[[4]]"));
  EXPECT_EQ(gather["output_sizes"], base::Json::parse("[[8]]"));
  EXPECT_EQ(gather["state"], "completed");
  EXPECT_EQ(gather["timeout_ms"], 2000);
  EXPECT_EQ(gather["is_p2p"], false);
  EXPECT_GT(gather["time_created_ns"].get<int64_t>(), int64_t{1'600'000'000} * 1'000'000'000);
  EXPECT_EQ(json["entries"][1]["profiling_name"], "nccl:recv 1<-0");
  EXPECT_EQ(json["entries"][1]["process_group"][1], "tp 1-5");
  EXPECT_EQ(json["entries"][1]["state"], "scheduled");
  EXPECT_EQ(json["entries"][1]["trireme_state"], "started");
}

// A call is scheduled when it is made, started and completed when its work runs.
TEST(FlightRecorder, follows_the_stream) {
  ThreadWorld world(2);
  run_ranks(world, [&](int r) {
    Rank rank(world, r, StreamMode::worker_threads);
    std::mutex gate;
    gate.lock();
    dynamic_cast<device::CpuStream&>(*rank.stream).enqueue([&gate] {
      const std::scoped_lock lock(gate);
    });
    const Tensor x = rank.make(Values(5000, 1));
    rank.group->all_reduce(*rank.stream, x, Reduce::sum);
    EXPECT_EQ(world.recorder(r).entries().back().state, State::scheduled);
    gate.unlock();
    rank.stream->synchronize();
    const auto entry = world.recorder(r).entries().back();
    EXPECT_EQ(entry.state, State::completed);
    EXPECT_EQ(entry.op, "all_reduce");
    EXPECT_EQ(entry.elements, 5000);
    EXPECT_LE(entry.scheduled_s, entry.started_s);
    EXPECT_LE(entry.started_s, entry.completed_s);
    rank.group->barrier();
    EXPECT_EQ(world.recorder(r).entries().back().sequence, 1);
  });
}

TEST(FlightRecorder, a_call_that_was_aborted_is_failed) {
  ThreadWorld world(2, 0.1);
  EXPECT_NE(failure_of(world,
                       [&](int r) {
                         Rank rank(world, r, StreamMode::inline_calls);
                         if (r == 0) rank.group->barrier();
                       }),
            "");
  EXPECT_EQ(world.recorder(0).entries().back().state, State::failed);
  EXPECT_TRUE(world.recorder(1).entries().empty());
}

}  // namespace
}  // namespace trireme::comm
