// SPDX-License-Identifier: Apache-2.0
// `trireme schedule` and `trireme sim`.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

std::vector<std::string> schedule(const std::string& rest) {
  std::vector<std::string> words = words_of(rest);
  words.insert(words.begin(), "schedule");
  return words;
}

TEST(ScheduleVerbTest, json_has_time_bubble_memory_and_actions) {
  const Scratch s;
  const base::Json out = trireme_json(s, schedule("1f1b --stages 4 --microbatches 8"));
  EXPECT_EQ(out["step_time"], 33.0);
  EXPECT_DOUBLE_EQ(out["bubble_fraction"].get<double>(), 3.0 / 11);
  EXPECT_EQ(out["peak_memory"], (base::Json{4.0, 3.0, 2.0, 1.0}));
  EXPECT_EQ(out["actions"][0]["action"], "0F0");
  EXPECT_EQ(out["actions"][0]["end"], 1.0);
  // F, BW, ReduceGrads, SyncTied; sends and receives over three borders, both ways.
  EXPECT_EQ(out["actions"].size(), 4U * (8 + 8 + 2) + 3U * 2 * 2 * 8);
}

TEST(ScheduleVerbTest, the_text_form_is_read_back) {
  const Scratch s;
  for (const char* name : {"gpipe", "interleaved", "zb-v", "dualpipe", "dualpipe-v"}) {
    const Outcome text =
        trireme(s, schedule(std::string(name) + " --stages 4 --microbatches 8 --text"));
    ASSERT_EQ(text.exit_code, 0) << text.err;
    s.write("mine.txt", text.out);
    const base::Json made =
        trireme_json(s, schedule(std::string(name) + " --stages 4 --microbatches 8"));
    const base::Json read = trireme_json(s, schedule("--check mine.txt"));
    EXPECT_EQ(made["step_time"], read["step_time"]) << name;
    EXPECT_EQ(made["actions"], read["actions"]) << name;
  }
}

TEST(ScheduleVerbTest, a_picture_is_written) {
  const Scratch s;
  const Outcome outcome = trireme(s, schedule("zb-v --stages 4 --microbatches 8 --svg p.svg"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(s.read("p.svg").starts_with("<?xml"));
  EXPECT_TRUE(s.read("p.svg").ends_with("</svg>\n"));
}

TEST(ScheduleVerbTest, faults_of_a_file_are_shown_at_their_place) {
  const Scratch s;
  s.write("bad.txt",
          "0F0 0SendY0>1 0RecvDy0<1 0BW0\n"
          "1RecvX0<0 1BW0 1F0 1SendDx0>0\n");
  const Outcome fault = trireme(s, schedule("--check bad.txt"));
  EXPECT_EQ(fault.exit_code, 2);
  EXPECT_NE(fault.err.find("bad.txt: rank 1, action 1 (1BW0): its F has not run\n"),
            std::string::npos)
      << fault.err;
  EXPECT_NE(fault.err.find("1RecvX0<0 [1BW0] 1F0 1SendDx0>0"), std::string::npos) << fault.err;

  s.write("mistyped.txt", "0F0 0BW0\n1F0 1BX0\n");
  const Outcome mistyped = trireme(s, schedule("--check mistyped.txt"));
  EXPECT_EQ(mistyped.exit_code, 2);
  EXPECT_NE(mistyped.err.find("line 2, column 6: expected an operation, found \"BX0\"\n"
                              "1F0 1BX0\n"
                              "     ^"),
            std::string::npos)
      << mistyped.err;
}

TEST(ScheduleVerbTest, impossible_requests_are_refused_with_the_nearest_possible) {
  const Scratch s;
  write_tiny(s);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"schedule dualpipe --stages 8 --microbatches 10",
       "dualpipe on 8 ranks needs at least 16 micro-batches, found 10: the nearest are 16 "
       "micro-batches, or 4 ranks"},
      {"schedule 1f1b --stages 4 --microbatches 8 --chunks 2",
       "1f1b has 1 chunk per rank, found 2; interleaved allows any number"},
      {"schedule zb-h2 --stages 8 --microbatches 24 --mem 8",
       "zb-h2 needs 15 on rank 0, but --mem allows 8; give --mem 15, or the schedule `capped`, "
       "which stays within 8"},
      {"schedule capped --stages 4 --microbatches 8 --chunks 3 --mem 2",
       "the cap is 2, but one micro-batch alone needs 3: the cap must be at least 3"},
      {"schedule nothing --stages 4 --microbatches 8",
       "unknown schedule 'nothing'; allowed are gpipe"},
      {"schedule 1f1b --stages 4", "give a NAME, --stages and --microbatches"},
      {"schedule 1f1b --stages 4 --microbatches 8 --costs 1,2",
       "--costs 1,2: expected 3 to 4 numbers of at least 0, separated by commas"},
      {"schedule 1f1b --stages 2 --microbatches 4 --buffers 0", "deadlock with 0 send buffers"},
      {"schedule 1f1b --stages 1000000 --microbatches 8", "allowed are 1 to 4096"},
      {"sim tiny_run.toml --stages 2",
       "the speed of a rank is not known: give --machine NAME (one of a100"},
      {"sim tiny_run.toml --stages 99 --microbatches 4 --tflops 1", "99 stages, but"},
      {"sim tiny_run.toml --tflops 1 --straggler 1:2", "with a rank below 1"},
  };
  for (const auto& [command, expected] : cases) {
    const Outcome outcome = trireme(s, words_of(command));
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << command << "\n" << outcome.err;
  }
}

TEST(SimVerbTest, without_options_it_simulates_the_pipeline_of_train) {
  const Scratch s;
  write_tiny(s);
  const auto played = trireme_json(
      s, words_of("sim tiny_run.toml --tflops 0.001 --parallelism.pipeline_parallel_degree=2 "
                  "--parallelism.pipeline_parallel_schedule=zb-v --training.global_batch_size=8"));
  EXPECT_EQ(played["ranks"], 2);
  EXPECT_EQ(played["stages"], 4);
  const auto asked = trireme_json(
      s, words_of("sim tiny_run.toml --tflops 0.001 --parallelism.pipeline_parallel_degree=2 "
                  "--schedule 1f1b --training.global_batch_size=8"));
  EXPECT_EQ(asked["ranks"], 2);
  EXPECT_EQ(asked["stages"], 2);
}

TEST(SimVerbTest, a_machine_gives_the_speed) {
  const Scratch s;
  write_tiny(s);
  const std::string call = "sim tiny_run.toml --stages 2 --microbatches 4 --training.dtype=bf16 ";
  const auto step = [&](const std::string& rest) {
    return trireme_json(s, words_of(call + rest))["step_time"].get<double>();
  };
  // 0.71 of 989 TFLOP/s: machines/h100.toml.
  EXPECT_EQ(step("--machine H100"), step("--tflops 702.19"));
  EXPECT_EQ(step("--system.machine=h100"), step("--machine h100"));
  EXPECT_EQ(step("--system.machine=h100 --tflops 1"), step("--tflops 1"));
  EXPECT_EQ(step("--system.peak_tflops=1"), step("--tflops 1"));
  const Outcome text = trireme(s, words_of(call + "--machine h100"));
  EXPECT_NE(text.out.find("702.2 TFLOP/s (bf16 of h100)"), std::string::npos) << text.out;
}

TEST(SimVerbTest, a_straggler_and_jitter_cost_time_and_a_seed_is_deterministic) {
  const Scratch s;
  write_tiny(s);
  const auto step = [&](const std::string& rest) {
    return trireme_json(s,
                        words_of("sim tiny_run.toml --tflops 0.001 --stages 2 --microbatches 8 " +
                                 rest))["step_time"]
        .get<double>();
  };
  const double even = step("");
  EXPECT_GT(step("--straggler 1:2"), even);
  EXPECT_EQ(step("--jitter 0.1 --seed 3"), step("--jitter 0.1 --seed 3"));
  EXPECT_NE(step("--jitter 0.1 --seed 3"), step("--jitter 0.1 --seed 4"));
  EXPECT_GT(step("--link 0.001 --latency-us 100"), even);
}

}  // namespace
}  // namespace trireme::tests
