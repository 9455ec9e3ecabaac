// SPDX-License-Identifier: Apache-2.0
// `trireme plan` chooses among recipes of number formats.
#include <gtest/gtest.h>

#include "base/text/json.h"
#include "tests/cli/plan_rig.h"

namespace trireme::tests {
namespace {

using base::Json;

TEST(PlanRecipes, recipes_are_compared_and_bf16_is_chosen_where_fp8_does_not_pay) {
  const Scratch s;
  const std::string recipes = " --gpus 1 --precision bf16,fp8-tensor,fp8-block ";
  const std::string wide =
      "plan --model llama-3b --machine h200 --batch 8 --seq-len 4096" + recipes;
  const Json json = plan_json(s, wide);
  ASSERT_EQ(json.at("precisions").size(), 3U);
  EXPECT_EQ(json.at("best").at("layout").at("precision"), "fp8-tensor");
  const Json& bf16 = json.at("precisions")[0];
  const Json& block = json.at("precisions")[2];
  EXPECT_EQ(bf16.at("precision"), "bf16");
  EXPECT_GT(bf16.at("time_change"), 0.2);
  EXPECT_GT(block.at("time_change"), 0);
  EXPECT_LT(block.at("time_change"), bf16.at("time_change"));
  EXPECT_EQ(json.at("precisions")[1].at("time_change"), 0);
  // Codes of one byte: less memory for weights and activations.
  const auto bytes = [](const Json& of) {
    return of.at("best").at("items").at("activations").get<double>();
  };
  EXPECT_LT(bytes(block), 0.9 * bytes(bf16));

  const std::string narrow =
      "plan --model gpt2-10m --machine h200 --batch 64 --seq-len 256" + recipes;
  const Json small = plan_json(s, narrow);
  EXPECT_EQ(small.at("best").at("layout").at("precision"), "bf16");
  EXPECT_NE(plan_output(s, narrow).find("does not pay"), std::string::npos)
      << plan_output(s, narrow);

  // A recipe without a legal layout is listed with its rule.
  const std::string odd =
      plan_output(s, "plan --model gpt2-124m --machine h200 --batch 3 --seq-len 1000" + recipes);
  EXPECT_NE(odd.find("fp8-block    no layout: "), std::string::npos) << odd;
  EXPECT_NE(odd.find("[precision.grain]"), std::string::npos) << odd;
}

TEST(PlanRecipes, a_configuration_with_a_recipe_is_priced_beside_bf16) {
  const Scratch s;
  s.write("fp8.toml",
          "[model]\nname = \"llama-1b\"\n[training]\nlocal_batch_size = 4\nseq_len = 2048\n"
          "[precision]\nrecipe = \"fp8-block\"\nbf16_first = 2\n");
  const Json json = plan_json(s, "plan fp8.toml --gpus 1 --machine h200");
  EXPECT_EQ(json.at("asked").at("layout").at("precision"), "fp8-block");
  EXPECT_EQ(json.at("asked").at("layout").at("settings").at("bf16_first"), 2);
  ASSERT_EQ(json.at("precisions").size(), 2U);
  EXPECT_GT(json.at("asked").at("bytes"), 0);
  EXPECT_EQ(json.at("best").at("layout").at("settings").at("bf16_first"), 2) << "also the answer's";
  const Outcome sim = trireme(s, {"sim", "fp8.toml", "--tflops", "700", "--stages", "2",
                                  "--microbatches", "4", "--fp8-tflops", "1250"});
  EXPECT_EQ(sim.exit_code, 0) << sim.err;
}

}  // namespace
}  // namespace trireme::tests
