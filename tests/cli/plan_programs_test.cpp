// SPDX-License-Identifier: Apache-2.0
// `trireme plan` for other training programs: their stacks, their settings, and published runs.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/text/json.h"
#include "tests/cli/plan_rig.h"

namespace trireme::tests {
namespace {

using base::Json;

const std::string published_runs = std::string(TRIREME_SOURCE_DIR) + "/tests/planner/runs.jsonl";

// A stack by name or by path; its memory is an estimate of that program, not the engine's plan.
TEST(PlanProgramsTest, another_program_is_priced_by_its_file) {
  const Scratch s;
  const std::string call =
      "plan --model llama3.1-8b --machine h100 --gpus 8 --batch 16 --seq-len 8192 --layout "
      "'zero=3 micro=2 selective' ";
  const std::string text = plan_output(s, call + "--stack torchtitan");
  EXPECT_EQ(text.find("phases"), std::string::npos) << text;
  const Json named = plan_json(s, call + "--stack torchtitan");
  expect_sums(named.at("asked"));
  EXPECT_EQ(named.at("asked").at("confirmed").at("bytes"), named.at("asked").at("bytes"));
  EXPECT_FALSE(named.at("asked").contains("phases"));
  // The stack file of Trireme changes nothing.
  const std::string own_call = "plan --model llama3.1-8b --machine h100 --gpus 8 --batch 16 ";
  Json plain = plan_json(s, own_call), by_file = plan_json(s, own_call + "--stack trireme");
  plain.erase("search");
  by_file.erase("search");
  EXPECT_EQ(plain, by_file);
  std::ofstream(s.path() / "mine.toml") << "format = 1\nwhat = 'a fork'\nsource = 'counted'\n"
                                           "[memory]\nlogit_bytes = 100\n";
  const Json own = plan_json(s, call + "--stack mine.toml");
  EXPECT_EQ(own.at("stack"), "mine");
  EXPECT_GT(own.at("asked").at("bytes"), named.at("asked").at("bytes"));
}

TEST(PlanProgramsTest, settings_of_other_programs_are_priced_with_their_stacks) {
  const Scratch s;
  s.write("titan.toml",
          "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
          "[training]\nlocal_batch_size = 1\nseq_len = 4096\n"
          "[parallelism]\ndata_parallel_shard_degree = -1\n");
  const std::string megatron =
      "plan --from-megatron '--num-layers 32 --hidden-size 4096 --num-attention-heads 32 "
      "--seq-length 4096 --max-position-embeddings 4096 --vocab-size 32000 --micro-batch-size 1 "
      "--global-batch-size 128 --tensor-model-parallel-size 4 --bf16 --swiglu "
      "--ffn-hidden-size 11008 --colour blue' --gpus 64 --machine a100-80gb";
  const Json of_megatron = plan_json(s, megatron);
  EXPECT_EQ(of_megatron.at("asked").at("layout").at("text"), "tp=4 pp=1 dp=16 zero=0 micro=1");
  EXPECT_TRUE(has_part(of_megatron.at("ignored"), "--colour"));
  EXPECT_TRUE(has_part(of_megatron.at("assumed"), "--overlap-grad-reduce is not given"));
  const Json of_titan = plan_json(s, "plan --from-torchtitan titan.toml --gpus 8 --machine h100");
  EXPECT_EQ(of_titan.at("model"), "llama3-8B");
  EXPECT_EQ(of_titan.at("asked").at("layout").at("zero"), 3);
  for (const Json& json : {of_megatron, of_titan}) {
    expect_sums(json.at("asked"));
    expect_sums(json.at("best"));
    EXPECT_EQ(json.at("better").size(), 3U);
    for (const Json& one : json.at("better")) {
      EXPECT_LT(one.at("seconds"), json.at("asked").at("seconds")) << one.at("layout").dump();
    }
  }
  EXPECT_NE(plan_output(s, megatron).find("\nyours     tp 4, dp 16"), std::string::npos);
}

TEST(PlanProgramsTest, published_runs_are_predicted_and_the_others_reported) {
  const Scratch s;
  const Json good = plan_json(s, "plan --validate " + published_runs);
  EXPECT_EQ(good.at("rows").size(), 3U);
  EXPECT_EQ(good.at("not_predicted").size(), 0U);
  EXPECT_LT(good.at("summary").at("mean_abs_error"), 0.15);
  double sum = 0;
  for (const Json& row : good.at("rows")) {
    const double error =
        row.at("predicted_seconds").get<double>() / row.at("measured_seconds").get<double>() - 1;
    EXPECT_NEAR(row.at("error"), error, 1e-12) << row.at("id");
    sum += std::abs(error);
  }
  EXPECT_NEAR(good.at("summary").at("mean_abs_error"), sum / 3, 1e-12);
  // A run whose micro-batch is not known.
  std::ifstream file(published_runs);
  std::string line;
  std::getline(file, line);
  s.write("more.jsonl", line + "\n\n" +
                            replaced(replaced(line, "\"micro_batch\": 8", "\"micro_batch\": null"),
                                     "megatron-sc21", "other") +
                            "\n");
  const Json part = plan_json(s, "plan --validate more.jsonl");
  EXPECT_EQ(part.at("rows").size(), 1U);
  ASSERT_EQ(part.at("not_predicted").size(), 1U);
  EXPECT_EQ(part.at("not_predicted")[0].at("id"), "other-t1-18B");
  EXPECT_EQ(part.at("not_predicted")[0].at("reason"), "micro_batch is not stated");
  EXPECT_NE(plan_output(s, "plan --validate more.jsonl")
                .find("not predicted: 1 run: micro_batch is not stated"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::tests
