// SPDX-License-Identifier: Apache-2.0
#include "train/trace/trace_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/text/json.h"
#include "engine/engine.h"
#include "train/setup/setup.h"
#include "train/trace/op_timeline.h"
#include "train/trace/run_trace.h"
#include "train/trace/stream_timeline.h"
#include "train/trace/trace_steps.h"

namespace trireme::train {
namespace {

class Ones final : public engine::MicrobatchSource {
 public:
  void fill(int /*index*/, const engine::HostMicrobatch& out) override {
    engine::set_equal_sequences(out, 2, 16);
    std::fill(out.tokens.begin(), out.tokens.end(), 1);
    std::fill(out.labels.begin(), out.labels.end(), 1);
  }
};

struct Rig {
  spec::ModelSpec model = spec::make_model({.family = spec::Family::llama,
                                            .layers = 2,
                                            .hidden = 16,
                                            .heads = 2,
                                            .ffn = 32,
                                            .vocab = 64,
                                            .max_seq = 16});
  Platform platform = make_platform({.device = "cpu", .threads = 1});
  engine::Engine engine{*platform.device, model,
                        spec::solve_or_throw(model, {.seq_len = 16},
                                             {.micro_batch = 2, .precision = spec::Precision::fp32},
                                             platform.backend),
                        platform.backend, engine::EngineOptions{}};
};

base::Json read(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return base::Json::parse(text.str());  // throws if it is not JSON
}

TEST(Trace, has_everything_that_is_queued_on_both_tracks) {
  const auto file =
      std::filesystem::temp_directory_path() / fmt::format("trireme_trace_{}.json", ::getpid());
  Rig rig;
  Ones source;
  StreamTimeline timeline(rig.engine.streams());
  for (const int64_t step : {3, 4}) {
    timeline.start(step);
    rig.engine.step(source, 1e-3);
    timeline.finish();
  }
  for (const device::Stream* stream : rig.engine.streams()) EXPECT_EQ(stream->observer(), nullptr);
  EXPECT_EQ(timeline.host_waits(), 0);
  {
    obs::OutputFile out(file, obs::OutputFile::Mode::replace);
    write_trace(out, {unpacked(packed(rank_trace(0, {}, timeline)))});
  }
  const base::Json json = read(file);
  std::filesystem::remove(file);
  EXPECT_EQ(json["otherData"]["host_waits_inside_steps"], 0);
  EXPECT_EQ(json["otherData"]["first_step"], 3);
  EXPECT_EQ(json["otherData"]["last_step"], 4);
  EXPECT_EQ(json["otherData"]["clocks"][0]["error_us"], 0);
  std::map<int, double> end_of_track;
  std::set<std::string> names;
  int64_t ops = 0, queued = 0, layered = 0, flows = 0;
  for (const base::Json& event : json["traceEvents"]) {
    if (event["ph"] == "M") {
      if (event["args"].contains("name")) names.insert(event["args"]["name"].get<std::string>());
      continue;
    }
    if (event["ph"] != "X") {
      ++flows;
      continue;
    }
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_TRUE(event.contains("cat")) << event.dump();
    if (event["name"].get<std::string>().starts_with("step ")) continue;
    const int track = event["tid"];
    // Operations of a stream follow one another.
    EXPECT_GE(event["ts"].get<double>(), end_of_track[track]) << event.dump();
    end_of_track[track] = event["ts"].get<double>() + event["dur"].get<double>();
    ops += event.contains("args") ? 1 : 0;
    queued += event["name"].get<std::string>().starts_with("queue ") ? 1 : 0;
    layered += event.contains("args") && event["args"]["layer"] != "" ? 1 : 0;
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 0", "stream compute", "stream copy", "host"}));
  EXPECT_GT(ops, 2 * 20);
  EXPECT_EQ(ops, queued);
  EXPECT_GT(layered, ops / 2);
  EXPECT_GT(flows, 0);
}

TEST(Trace, a_trace_without_steps_is_a_file_without_events) {
  const auto file =
      std::filesystem::temp_directory_path() / fmt::format("trireme_empty_{}.json", ::getpid());
  {
    obs::OutputFile out(file, obs::OutputFile::Mode::replace);
    write_trace(out, {RankTrace{.name = "rank 0", .streams = {"compute"}, .strings = {""}}});
  }
  const base::Json json = read(file);
  std::filesystem::remove(file);
  EXPECT_EQ(json["otherData"]["first_step"], 0);
  for (const base::Json& event : json["traceEvents"]) EXPECT_EQ(event["ph"], "M");
}

TEST(Trace, a_wait_of_the_host_is_counted) {
  // The device is 1 ms behind; after the second operation the host waits for it.
  const std::vector<TimedOp> waiting = {
      {.begin = 0, .end = 1e-3, .queue_begin = 0, .queue_end = 1e-5},
      {.begin = 1e-3, .end = 2e-3, .queue_begin = 1e-5, .queue_end = 2.1e-3},
      {.begin = 2.1e-3, .end = 3e-3, .queue_begin = 2.1e-3, .queue_end = 2.11e-3}};
  EXPECT_EQ(host_waits(waiting), 1);
  std::vector<TimedOp> free = waiting;
  free[1].queue_end = free[2].queue_begin = 2e-5;
  free[2].begin = 2e-3;
  free[2].queue_end = 3e-5;
  EXPECT_EQ(host_waits(free), 0);
}

TEST(Trace, large_worlds_keep_evenly_spaced_ranks) {
  EXPECT_EQ(kept_stride({100}, 10), 1);  // there is always one
  EXPECT_EQ(kept_stride({10, 10, 10, 10}, 40), 1);
  EXPECT_EQ(kept_stride({10, 10, 10, 10}, 39), 2);
  EXPECT_EQ(kept_stride({10, 10, 10, 10}, 19), 4);
  EXPECT_EQ(kept_stride(std::vector<int64_t>(1024, 3), 100), 32);
}

TEST(Trace, steps_are_given_as_first_and_last) {
  const TraceSteps steps = trace_steps_from("3:5", 10);
  EXPECT_TRUE(steps.contains(3) && steps.contains(5));
  EXPECT_FALSE(steps.contains(2) || steps.contains(6) || TraceSteps{}.contains(0));
  for (const char* bad : {"", "3", "3:", ":5", "0:2", "5:3", "3:11", "a:b", "1:2:3", "1-2"}) {
    EXPECT_THROW(trace_steps_from(bad, 10), base::ConfigError) << bad;
  }
}

}  // namespace
}  // namespace trireme::train
