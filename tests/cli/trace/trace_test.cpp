// SPDX-License-Identifier: Apache-2.0
// `train --trace-steps` on several ranks: one file with all streams of all ranks, and what the
// board draws from the same recording.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tests/cli/program.h"
#include "tests/cli/trace/trace_reader.h"

namespace trireme::tests {
namespace {

using base::Json;
using Words = std::vector<std::string>;

const std::string trace_file = "run/trace_steps_2-3.json";
const std::string experts = R"([moe]
experts = 4
experts_per_token = 2
expert_ffn = 16
)";

struct Layout {
  Words words;
  std::string axes;           // of the last rank, as in its name
  std::set<std::string> ops;  // on every rank
  std::string stream;         // that compute waits for; empty: collectives run on compute
};

Outcome train(const Scratch& s, const Words& layout) {
  Words words = {"train",
                 "tiny_run.toml",
                 "--device",
                 "cpu",
                 "--trace-steps",
                 "2:3",
                 "--training.global_batch_size=4"};
  words.insert(words.end(), layout.begin(), layout.end());
  return trireme(s, words);
}

// Expects the same calls in collectives.json as in the trace.
void expect_collectives(const Json& file, const ReadTrace& trace) {
  using Key = std::tuple<int, std::string, std::string>;  // rank, group, op
  std::map<Key, int64_t> in_file, in_trace, bytes_in_file, bytes_in_trace;
  for (const Json& row : file.at("rows")) {
    const Key key{row.at("rank").get<int>(), row.at("group").get<std::string>(),
                  row.at("op").get<std::string>()};
    in_file[key] += row.at("calls").get<int64_t>();
    bytes_in_file[key] += row.at("bytes").get<int64_t>();
    EXPECT_GE(row.at("exposed_seconds").get<double>(), 0);
    EXPECT_LE(row.at("exposed_seconds").get<double>(), row.at("seconds").get<double>() + 1e-12);
  }
  for (const ReadSlice& slice : trace.of_category("communication")) {
    const Key key{slice.rank, slice.args.at("group").get<std::string>(), slice.name};
    ++in_trace[key];
    bytes_in_trace[key] += slice.args.at("bytes").get<int64_t>();
  }
  EXPECT_EQ(in_file, in_trace);
  EXPECT_EQ(bytes_in_file, bytes_in_trace);
  EXPECT_EQ(file.at("steps"), Json({2, 3}));
  EXPECT_EQ(file.at("ranks").get<size_t>(), trace.ranks.size());
}

// Returns the trace of two ranks, after the expectations that hold for every layout.
ReadTrace traced(const Scratch& s, const Layout& layout) {
  const ReadTrace trace = read_trace(s.read(trace_file));
  EXPECT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(trace.ranks.at(1), "rank 1 (" + layout.axes + ")");
  expect_complete_communication(trace);
  std::map<int, std::set<std::string>> ops;
  std::set<std::string> waits;
  std::map<int, int> steps;
  for (const ReadSlice& slice : trace.slices) {
    if (slice.category == "communication") ops[slice.rank].insert(slice.name);
    if (slice.category == "wait") waits.insert(slice.name);
    const bool is_compute = trace.tracks.at({slice.rank, slice.track}) == "stream compute";
    if (is_compute && slice.category == "step") ++steps[slice.rank];
  }
  for (const int rank : {0, 1}) {
    for (const std::string& op : layout.ops) {
      EXPECT_TRUE(ops[rank].contains(op)) << "rank " << rank << " has no " << op;
    }
    EXPECT_EQ(steps[rank], 2);
  }
  if (!layout.stream.empty()) {
    const bool has_wait = std::any_of(waits.begin(), waits.end(), [&](const std::string& name) {
      return name.starts_with("wait for " + layout.stream);
    });
    EXPECT_TRUE(has_wait) << layout.stream;
  }
  EXPECT_GT(trace.flows.at("queue"), 0);
  EXPECT_EQ(trace.other_data.at("ranks"), 2);
  for (const Json& clock : trace.other_data.at("clocks")) {
    EXPECT_EQ(clock.at("method"), "host clock");
  }
  expect_collectives(only_object(s.read("run/collectives.json")), trace);
  return trace;
}

TEST(TraceTest, every_collective_of_every_layout_is_on_every_rank) {
  const std::string zero = "--parallelism.data_parallel_shard_degree=2";
  const std::vector<Layout> layouts = {
      {{zero, "--parallelism.zero_stage=3"}, "zero 1", {"all_gather", "reduce_scatter"}, "dp"},
      {{"--parallelism.tensor_parallel_degree=2"}, "tp 1", {"all_reduce", "all_gather"}, ""},
      {{"--parallelism.context_parallel_degree=2"}, "cp 1", {"all_gather"}, "cp"},
      // A budget that no step exceeds, so that no step is repeated.
      {{zero, "--parallelism.expert_parallel_degree=2", "--moe.row_budget=2",
        "--checkpoint.export_folder="},
       "zero 1 ep 1",
       {"all_to_all", "all_gather"},
       "dp"}};
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.axes);
    const Scratch s;
    write_tiny(s);
    if (layout.ops.contains("all_to_all")) s.write("tiny.toml", s.read("tiny.toml") + experts);
    const Outcome outcome = train(s, layout.words);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    traced(s, layout);
    EXPECT_FALSE(s.has("run/pipeline.json"));
  }
}

TEST(TraceTest, a_pipeline_has_flows_of_its_messages_and_planned_above_traced_actions) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome =
      train(s, {"--parallelism.pipeline_parallel_degree=2", "--training.local_batch_size=1"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const ReadTrace trace = traced(s, {{}, "pp 1", {"send", "recv", "all_gather"}, "pp activations"});
  EXPECT_GE(trace.flows.at("message"), 2 * 2 * 4);  // steps, directions, micro-batches
  const Json pipeline = only_object(s.read("run/pipeline.json"));
  ASSERT_EQ(pipeline.at("steps").size(), 2U);
  for (const Json& step : pipeline.at("steps")) {
    EXPECT_EQ(step.at("pp"), 2);
    ASSERT_EQ(step.at("planned").size(), step.at("traced").size());
    ASSERT_EQ(step.at("planned").size(), 2U * 2 * 4);  // ranks, F and BW, micro-batches
    for (size_t i = 0; i < step.at("planned").size(); ++i) {
      const Json &planned = step.at("planned")[i], &measured = step.at("traced")[i];
      for (const char* key : {"rank", "action", "stage", "micro", "kind"}) {
        EXPECT_EQ(planned.at(key), measured.at(key));
      }
      EXPECT_LT(planned.at("begin").get<double>(), planned.at("end").get<double>());
      EXPECT_LT(measured.at("begin").get<double>(), measured.at("end").get<double>());
    }
  }
  EXPECT_TRUE(s.has("run/pipeline_steps_2-3.svg"));
}

TEST(TraceTest, a_trace_of_ranks_changes_no_bit) {
  const Words zero = {"--parallelism.data_parallel_shard_degree=2"};
  std::vector<std::string> weights;
  for (const bool is_traced : {false, true}) {
    const Scratch s;
    write_tiny(s);
    Words words = {"train", "tiny_run.toml", "--device",
                   "cpu",   zero.front(),    "--training.local_batch_size=1"};
    if (is_traced) words.insert(words.end(), {"--trace-steps", "2:3"});
    ASSERT_EQ(trireme(s, words).exit_code, 0);
    weights.push_back(s.read(final_weights));
  }
  EXPECT_TRUE(weights[0] == weights[1]);
}

}  // namespace
}  // namespace trireme::tests
