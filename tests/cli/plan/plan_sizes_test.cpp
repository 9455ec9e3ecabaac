// SPDX-License-Identifier: Apache-2.0
// `trireme plan` without a model (--days, --budget), and with a deadline.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/text/json.h"
#include "tests/cli/plan_rig.h"

namespace trireme::tests {
namespace {

using base::Json;

// One GPU and no recompute: a small space, so that a dozen searches take little time.
const std::string small_space = " --recompute none --zero 0 ";

TEST(PlanSizes, the_time_gives_sizes_tokens_and_dollars) {
  const Scratch s;
  const std::string call = "plan --machine H100 --gpus 1 --days 2 --price 2.5" + small_space;
  const Json json = plan_json(s, call);
  EXPECT_EQ(json.at("compute_optimal_tokens_per_parameter"), 20);
  EXPECT_NE(json.at("source").get<std::string>().find("2203.15556"), std::string::npos);
  ASSERT_EQ(json.at("sizes").size(), 3U);
  const double ratios[] = {20, 100, 200};
  for (size_t i = 0; i < 3; ++i) {
    const Json& row = json.at("sizes").at(i);
    // The steps of a depth are up to 6 % of a size.
    EXPECT_NEAR(row.at("tokens_per_parameter").get<double>() / ratios[i], 1, 0.12) << row.dump();
  }
  ASSERT_GE(json.at("models").size(), 3U);
  std::set<double> shares;
  for (const char* list : {"sizes", "models"}) {
    for (const Json& row : json.at(list)) {
      ASSERT_TRUE(row.at("fits")) << row.dump();
      const Json& run = row.at("best").at("run");
      EXPECT_LE(run.at("days"), 2);
      EXPECT_GT(run.at("days"), 1.99);
      EXPECT_EQ(run.at("tokens"), row.at("tokens"));
      EXPECT_NEAR(run.at("dollars"), 2.5 * run.at("gpu_hours").get<double>(), 1e-6);
      shares.insert(row.at("best").at("mfu").get<double>());
    }
  }
  EXPECT_GT(shares.size(), 4U) << "the MFU is that of each size";
  // A row is the answer of the planner to its model.
  const Json& row = json.at("models").back();
  const Json planned =
      plan_json(s, "plan --model " + row.at("model").get<std::string>() +
                       " --machine h100 --gpus 1 --batch " + row.at("global_batch").dump() +
                       " --seq-len " + row.at("seq_len").dump() + " --tokens " +
                       row.at("tokens").dump() + " --price 2.5" + small_space);
  EXPECT_EQ(planned.at("best"), row.at("best"));
  const std::string text = plan_output(s, call);
  for (const char* part : {"compute-optimal", "over-trained 5 x", "over-trained 10 x",
                           "arXiv:2203.15556", "at 2.50 $/GPU-hour", "next      trireme plan"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  const std::string unpriced =
      plan_output(s, "plan --machine h100 --gpus 1 --days 2" + small_space);
  EXPECT_EQ(text.find("--price, the dollars"), std::string::npos) << text;
  EXPECT_NE(unpriced.find("--price, the dollars"), std::string::npos) << unpriced;
}

TEST(PlanSizes, a_budget_is_time_and_a_size_that_does_not_fit_has_the_reason) {
  const Scratch s;
  const Json json =
      plan_json(s, "plan --machine h100 --gpus 1 --budget 60k --price 2.5" + small_space);
  EXPECT_DOUBLE_EQ(json.at("days"), 1000);
  EXPECT_EQ(json.at("budget"), 60000);
  const Json& optimal = json.at("sizes").at(0);
  EXPECT_EQ(optimal.at("fits"), false);
  EXPECT_NE(optimal.at("reason").get<std::string>().find("does not fit: "), std::string::npos);
  EXPECT_TRUE(optimal.at("best").is_null());
  // One model alone.
  const Json one = plan_json(
      s, "plan --model llama3.2-1b --machine h100 --gpus 1 --days 1 --seq-len 2k" + small_space);
  EXPECT_TRUE(one.at("sizes").empty());
  ASSERT_EQ(one.at("models").size(), 1U);
  EXPECT_EQ(one.at("models").at(0).at("seq_len"), 2000);
}

TEST(PlanSizes, a_deadline_gives_the_fewest_gpus) {
  const Scratch s;
  const std::string job =
      "plan --model llama3.2-1b --machine h100 --batch-tokens 1M --seq-len 4096 --tokens 20B" +
      small_space;
  const Json json = plan_json(s, job + "--deadline 2");
  const int64_t gpus = json.at("gpus");
  ASSERT_GT(gpus, 1);
  EXPECT_LE(json.at("best").at("run").at("days"), 2);
  EXPECT_EQ(json.at("best").at("layout").at("gpus"), gpus);
  int tried = 0;
  for (const Json& trial : json.at("trials")) {
    if (trial.at("gpus") == gpus) continue;
    EXPECT_LT(trial.at("gpus"), gpus);
    EXPECT_NE(trial.at("reason"), "");
    ++tried;
  }
  EXPECT_GT(tried + json.at("first_gpus").get<int>(), 1);
  // The number before it takes longer.
  const Json fewer = plan_json(s, job + "--gpus " + std::to_string(gpus - 1));
  EXPECT_GT(fewer.at("best").at("run").at("days"), 2);
  const std::string text = plan_output(s, job + "--deadline 2");
  EXPECT_NE(text.find("GPUs: enough\nanswer    " + std::to_string(gpus) + " GPUs: "),
            std::string::npos)
      << text;
  const std::string late = plan_output(s, job + "--deadline 0.01 --gpus 2", 1);
  EXPECT_NE(late.find("answer    no number of h100"), std::string::npos) << late;
}

TEST(PlanSizes, wrong_questions_are_refused_with_what_is_missing) {
  const Scratch s;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--machine h100 --days 7", "also give the GPUs that there are, --gpus N"},
      {"--gpus 8 --days 7", "--machine NAME. Machines: a100"},
      {"--machine h100 --gpus 8 --days 0", "--days 0: must be above 0"},
      {"--machine h100 --gpus 8 --budget 100", "give --price, the dollars of a GPU-hour"},
      {"--machine h100 --gpus 8 --days 7 --tokens 1B", "--days and --tokens: "},
      {"--machine h100 --gpus 8 --days 7 --out x.toml", "--days and --out: "},
      {"--machine h100 --gpus 8", "--days or --budget with --machine and --gpus"},
      {"--model llama3.2-1b --machine h100 --batch 8 --deadline 3", "also give --tokens"},
      {"--model llama3.2-1b --machine h100 --batch 8 --tokens 1B --deadline soon",
       "a number of days, as 30, or a date"},
      {"--model llama3.2-1b --machine h100 --batch 8 --tokens 1Bn --gpus 8",
       "'1Bn' is not a number"},
  };
  for (const auto& [call, message] : cases) {
    const Outcome outcome = trireme(s, words_of("plan " + call));
    EXPECT_EQ(outcome.exit_code, 2) << call;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << call << "\n" << outcome.err;
  }
}

}  // namespace
}  // namespace trireme::tests
