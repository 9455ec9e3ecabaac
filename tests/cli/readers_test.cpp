// SPDX-License-Identifier: Apache-2.0
// Files of a run as other programs read them: traces with the nesting rule of speedscope, metrics
// by kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

struct Slice {
  double begin = 0, end = 0;
  std::string name;
};

// speedscope adds ts and dur as doubles, and nests a slice that begins before an earlier one of its
// track has ended. Returns the maximum depth of nesting, or -1 if a slice ends after the one around
// it.
int depth_in_speedscope(std::vector<Slice> slices) {
  std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end);
  });
  std::vector<Slice> open;
  size_t deepest = 0;
  for (const Slice& slice : slices) {
    while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
    if (!open.empty() && slice.end > open.back().end) return -1;
    open.push_back(slice);
    deepest = std::max(deepest, open.size());
  }
  return static_cast<int>(deepest);
}

void expect_readable_trace(const std::string& text) {
  const base::Json trace = only_object(text);
  const std::set<std::string> categories = {"step", "compute",       "memory", "optimizer",
                                            "host", "communication", "wait"};
  std::map<std::pair<int, int>, std::vector<Slice>> tracks;
  std::set<std::string> seen;
  for (const base::Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], duration = event["dur"];
    EXPECT_GE(duration, 0) << event;
    const std::string category = event.value("cat", "");
    EXPECT_TRUE(categories.contains(category)) << event;
    seen.insert(category);
    tracks[{event["pid"], event["tid"]}].push_back(
        {begin, begin + duration, event["name"].get<std::string>()});
  }
  EXPECT_TRUE(seen.contains("compute") && seen.contains("host"));
  EXPECT_GE(tracks.size(), 2U);
  // Operations are nested in their step, and sums in the collective that needs them; no deeper.
  for (const auto& [track, slices] : tracks) {
    const int depth = depth_in_speedscope(slices);
    EXPECT_TRUE(depth == 2 || depth == 3) << track.second << ": " << depth;
    constexpr int compute = 1, host = 2;
    if (track.second > host) continue;
    EXPECT_GT(slices.size(), 20U);
    EXPECT_TRUE(depth == 2 || track.second != compute) << depth;
  }
}

TEST(ReadersTest, a_trace_has_operations_inside_steps) {
  const std::vector<Words> layouts = {
      {},
      {"--parallelism.data_parallel_shard_degree=2", "--parallelism.zero_stage=3",
       "--training.local_batch_size=1", "--training.global_batch_size=4"}};
  for (const Words& layout : layouts) {
    const Scratch s;
    write_tiny(s);
    Words words = {"train", "tiny_run.toml", "--trace-steps", "1:4"};
    words.insert(words.end(), layout.begin(), layout.end());
    trireme_json(s, words);
    expect_readable_trace(s.read("run/trace_steps_1-4.json"));
  }
}

TEST(ReadersTest, speedscope_would_nest_slices_that_overlap_by_a_rounding) {
  EXPECT_EQ(depth_in_speedscope({{0, 10, "step"}, {0, 4, "a"}, {4, 10, "b"}}), 2);
  EXPECT_EQ(depth_in_speedscope({{0, 10, "step"}, {0, 4 + 1e-11, "a"}, {4, 9, "b"}}), -1);
}

TEST(ReadersTest, every_line_of_metrics_has_a_kind) {
  const Scratch s;
  write_tiny(s);
  const Words first = {"train",
                       "tiny_run.toml",
                       "--validation.enable",
                       "--validation.freq=2",
                       "--checkpoint.interval=2",
                       "--metrics.log_freq=1"};
  Words again = first;
  again.insert(again.end(),
               {"--training.steps=6", "--lr_scheduler.total_steps=4", "--resume", "auto"});
  ASSERT_EQ(trireme(s, first).exit_code, 0);
  const Outcome resumed = trireme(s, again);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  std::istringstream lines(s.read("run/metrics.jsonl"));
  std::map<std::string, int> kinds;
  for (std::string line; std::getline(lines, line);) {
    const base::Json json = base::Json::parse(line);
    ASSERT_TRUE(json.contains("kind") && json.contains("step") && json.contains("time")) << line;
    ++kinds[json.at("kind").get<std::string>()];
  }
  for (const char* kind : {"start", "train", "validation", "checkpoint", "export", "resume"}) {
    EXPECT_GT(kinds[kind], 0) << kind;
  }
  EXPECT_EQ(kinds.size(), 6U);
  EXPECT_EQ(kinds["train"], 6);
  EXPECT_EQ(kinds["resume"], 1);
}

}  // namespace
}  // namespace trireme::tests
