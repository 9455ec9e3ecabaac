// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts from the command line: train on ranks along ep, resume on others, export,
// import, eval and generate.
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

const std::string moe_model =
    "family = \"llama\"\n"
    "layers = 2\n"
    "hidden = 16\n"
    "heads = 2\n"
    "ffn = 32\n"
    "vocab = 256\n"
    "max_seq = 32\n"
    "[moe]\n"
    "experts = 4\n"
    "experts_per_token = 2\n"
    "expert_ffn = 16\n"
    "renormalize = true\n"
    "aux_loss = 0.01\n";
// The bias moves by a tenth in a step, so that it changes choices, and with them losses.
const std::string router_bias =
    "score = \"sigmoid\"\n"
    "router_bias = true\n"
    "bias_rate = 0.1\n"
    "shared_ffn = 8\n"
    "dense_layers = 1\n";

struct ExpertsRun {
  explicit ExpertsRun(const std::string& more = "", const Words& options = {})
      : has_export(more.empty()) {
    write_tiny(s);
    s.write("tiny.toml", moe_model + more);
    summary = train(options);
  }
  base::Json train(const Words& options) const {
    Words words = {"train", "tiny_run.toml", "--validation.enable", "--validation.samples=5",
                   "--checkpoint.interval=2"};
    if (!has_export) words.emplace_back("--checkpoint.export_folder=");
    words.insert(words.end(), options.begin(), options.end());
    return trireme_json(s, words);
  }
  base::Json loss(const std::string& from) const {
    return trireme_json(s, {"eval", from, "--batch", "2"}).at("loss");
  }
  base::Json tokens(const std::string& from) const {
    return trireme_json(s, {"generate", from, "--prompt", "9 bottles", "--tokens", "30"})
        .at("tokens");
  }
  Scratch s;
  bool has_export;  // the model has a Hugging Face form
  base::Json summary;
};

TEST(ExpertsTest, evaluated_checkpoints_and_exports_have_the_validation_loss_of_the_run) {
  const ExpertsRun run;
  for (const std::string path : {"run", "run/weights/final", "run/checkpoint"}) {
    EXPECT_EQ(run.loss(path), run.summary.at("validation_loss")) << path;
  }
  EXPECT_EQ(run.tokens("run/checkpoint"), run.tokens("run/weights/final"));
  const std::string config = run.s.read("run/weights/final/config.json");
  EXPECT_NE(config.find("\"mixtral\""), std::string::npos) << config;
  ASSERT_EQ(trireme(run.s, {"ckpt", "export", "run", "--out", "exported"}).exit_code, 0);
  ASSERT_EQ(trireme(run.s, {"ckpt", "import", "exported", "--into", "to_come"}).exit_code, 0);
  EXPECT_EQ(run.tokens("to_come"), run.tokens("run"));
}

TEST(ExpertsTest, the_bias_of_routers_is_read_from_checkpoints) {
  const ExpertsRun run(router_bias);
  EXPECT_EQ(run.loss("run/checkpoint"), run.summary.at("validation_loss"));
  EXPECT_EQ(run.loss("run"), run.summary.at("validation_loss"));
  EXPECT_EQ(run.tokens("run").size(), 30U);
}

TEST(ExpertsTest, a_model_without_a_hugging_face_form_is_not_exported) {
  const ExpertsRun run(router_bias);
  const Outcome trained = trireme(run.s, {"train", "tiny_run.toml", "--overwrite"});
  EXPECT_EQ(trained.exit_code, 2) << trained.err;
  EXPECT_NE(trained.err.find("checkpoint.export_folder"), std::string::npos) << trained.err;
  const Outcome outcome = trireme(run.s, {"ckpt", "export", "run", "--out", "exported"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("sigmoid"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(run.s.at("exported")));
}

// Two steps on one layout, two on another, compared with one rank that stops and resumes, too: the
// schedule of the learning rate follows training.steps. The auxiliary loss compares choices inside
// a micro-batch, which the layouts cut differently, so it is off.
TEST(ExpertsTest, a_run_is_continued_on_other_ranks_along_ep) {
  const Words alone = {"--moe.aux_loss=0"};
  const Words ep2 = {"--parallelism.data_parallel_shard_degree=2",
                     "--parallelism.expert_parallel_degree=2", "--training.local_batch_size=1",
                     "--moe.aux_loss=0"};
  const auto loss_after = [](Words first, Words second) {
    first.emplace_back("--training.steps=2");
    second.insert(second.end(), {"--resume", "auto"});
    const ExpertsRun run(router_bias, first);
    const base::Json summary = run.train(second);
    EXPECT_EQ(summary.at("steps"), 4);
    EXPECT_EQ(run.loss("run/checkpoint"), summary.at("validation_loss"));
    return summary.at("validation_loss").get<double>();
  };
  const double expected = loss_after(alone, alone);
  EXPECT_NEAR(loss_after(alone, ep2), expected, 1e-5);
  EXPECT_NEAR(loss_after(ep2, alone), expected, 1e-5);
}

// A row budget without reserve is exceeded at once, and the engine is rebuilt in the same run.
TEST(ExpertsTest, bytes_sent_are_those_predicted_after_a_larger_row_budget) {
  const Scratch s;
  write_tiny(s);
  s.write("tiny.toml", moe_model);
  const Outcome outcome =
      trireme(s, {"train", "tiny_run.toml", "--json", "--moe.row_budget=1",
                  "--parallelism.data_parallel_shard_degree=2",
                  "--parallelism.expert_parallel_degree=2", "--training.local_batch_size=1"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("exceeded the row budget of 1;"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("layout    dp 2 ZeRO-3, ep 2,"), std::string::npos) << outcome.err;
  const base::Json ranks = only_object(outcome.out).at("ranks");
  ASSERT_EQ(ranks.size(), 2U);
  for (const base::Json& rank : ranks) {
    EXPECT_GT(rank.at("traffic_counted_bytes").get<int64_t>(), 0);
    EXPECT_EQ(rank.at("traffic_counted_bytes"), rank.at("traffic_predicted_bytes"));
  }
}

}  // namespace
}  // namespace trireme::tests
