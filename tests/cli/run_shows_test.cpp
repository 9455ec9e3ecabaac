// SPDX-License-Identifier: Apache-2.0
// The output of a run: its plan before the first step, its steps, its saves.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

Words train_tiny(const Words& more) {
  Words words = {"train", "tiny_run.toml"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Returns the lines of one kind in metrics.jsonl by step; the last one for equal steps.
std::map<int64_t, base::Json> metrics(const Scratch& s, const std::string& kind) {
  std::map<int64_t, base::Json> found;
  std::istringstream lines(s.read("run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const base::Json json = base::Json::parse(line);
    if (json.at("kind") == kind) found[json.at("step")] = json;
  }
  return found;
}

void expect_parts(const std::string& text, const Words& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "missing: " << part << "\n" << text;
  }
}

TEST(RunShows, its_plan_before_the_first_step) {
  const Scratch s;
  write_tiny(s);
  s.write("short.txt", tiny_text(100).substr(0, 20 * 16 + 1));
  const Outcome outcome = trireme(
      s,
      train_tiny({"--training.dataset_path=short.txt", "--training.steps=60", "--validation.enable",
                  "--validation.split=0.1", "--validation.freq=40", "--validation.samples=1",
                  "--checkpoint.interval=25", "--checkpoint.export_interval=20"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_parts(outcome.err,
               {"steps     60 x 2 samples = 120 of 17 samples: 7.06 epochs; 1,920 tokens",
                "warning: the run reads its training data 7.1 times",
                "validate  every 40 steps and after the last: 1 of 2 held-out samples, 16 tokens",
                "save      every 25 steps, after the last step and at a stop; ",
                ", the newest 2 and older ones by powers of two of age kept, at most ",
                "export    weights every 20 steps and after the last step", "disk      "});
  EXPECT_LT(outcome.err.find("disk      "), outcome.err.find("step:  1"));
}

TEST(RunShows, what_it_will_not_do) {
  const Scratch s;
  write_tiny(s);
  const Outcome last = trireme(s, train_tiny({"--checkpoint.interval=0"}));
  expect_parts(last.err, {"validate  no: validation.enable = false",
                          "save      after the last step and at a stop only "
                          "(checkpoint.interval = 0)"});
  EXPECT_EQ(last.err.find("warning"), std::string::npos) << last.err;
  const Outcome none = trireme(s, train_tiny({"--checkpoint.enable=false", "--overwrite"}));
  expect_parts(none.err, {"save      no checkpoints: checkpoint.enable = false",
                          "export    no weights: checkpoint.enable = false"});
}

TEST(RunShows, the_size_of_a_checkpoint_that_will_be) {
  for (const Words& layout : std::vector<Words>{{},
                                                {"--parallelism.data_parallel_shard_degree=2"},
                                                {"--parallelism.tensor_parallel_degree=2",
                                                 "--parallelism.pipeline_parallel_degree=2"}}) {
    const Scratch s;
    write_tiny(s);
    Words words = train_tiny(layout);
    words.emplace_back("--training.local_batch_size=1");
    words.emplace_back("--training.global_batch_size=2");
    const base::Json summary = trireme_json(s, words);
    int64_t found = 0;
    for (const auto& [name, bytes] : s.tree("run/checkpoint/step-00000004")) {
      found += static_cast<int64_t>(bytes.size());
    }
    const int64_t predicted = summary.at("checkpoints").at("predicted_file_bytes");
    EXPECT_GT(found, 0);
    // Only numbers in the manifest may have more or fewer digits.
    EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(found), 256)
        << (layout.empty() ? "one rank" : layout.front());
  }
}

TEST(RunShows, saves_and_exports) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome = trireme(
      s, train_tiny({"--checkpoint.interval=2", "--parallelism.data_parallel_shard_degree=2"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_parts(outcome.err, {"saved     checkpoint of step 2: ", "saved     checkpoint of step 4: ",
                             "KiB in ", "weights   run/weights/final ("});
  EXPECT_GT(metrics(s, "checkpoint").at(2).at("checkpoint/bytes"), 1000);
  EXPECT_GT(metrics(s, "export").at(4).at("export/bytes"), 1000);
}

TEST(RunShows, tokens_and_epochs_over_attempts_and_batches) {
  const Scratch s;
  write_tiny(s);
  const auto run = [&](int steps, int batch) {
    return trireme(
        s, train_tiny({"--training.steps=" + std::to_string(steps),
                       "--training.global_batch_size=" + std::to_string(batch),
                       "--metrics.log_freq=1", "--resume", "auto", "--allow-batch-change"}));
  };
  ASSERT_EQ(run(3, 2).exit_code, 0);
  const Outcome second = run(5, 4);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  expect_parts(second.err, {"steps     2 (4 to 5) x 4 samples = 8 of ",
                            "128 tokens, 224 with earlier attempts", "lr: ", "tokens: 224  tps: "});
  const auto lines = metrics(s, "train");
  const std::map<int64_t, double> samples = {{1, 2}, {2, 4}, {3, 6}, {4, 10}, {5, 14}};
  const double epoch = lines.at(1).at("epoch").get<double>() / 2;
  for (const auto& [step, count] : samples) {
    const base::Json& line = lines.at(step);
    EXPECT_EQ(line.at("tokens"), 16 * count) << step;
    EXPECT_NEAR(line.at("epoch").get<double>(), epoch * count, 1e-12) << step;
    EXPECT_GE(line.at("time_metrics/data_loading(s)").get<double>(), 0);
    EXPECT_GT(line.at("time_metrics/end_to_end(s)").get<double>(), 0);
  }
  // A finished run prints no loss, because it took no step.
  const base::Json done = trireme_json(
      s, train_tiny({"--training.steps=5", "--training.global_batch_size=4", "--resume", "auto"}));
  EXPECT_FALSE(done.contains("loss")) << done.dump();
  EXPECT_EQ(done.at("attempt_steps"), 0);
  EXPECT_EQ(done.at("total_tokens"), 224);
}

TEST(RunShows, steps_that_earlier_attempts_skipped) {
  const Scratch s;
  write_tiny(s);
  // Gradient norms that vary widely.
  const Words words =
      train_tiny({"--training.steps=60", "--optimizer.lr=0.5", "--training.clip=none",
                  "--training.skip_norm_multiple=1", "--resume", "auto"});
  const base::Json first = trireme_json(s, words), second = trireme_json(s, words);
  ASSERT_GT(first.at("skipped_steps"), 0);
  EXPECT_EQ(second.at("attempt_steps"), 0);
  EXPECT_EQ(second.at("skipped_steps"), first.at("skipped_steps"));
}

TEST(RunShows, the_same_validation_on_every_layout) {
  const std::string micro = "--training.local_batch_size=", workers = "--parallelism.logical_dp=";
  struct Validation {
    base::Json loss, tokens;
  };
  const auto validation = [&](const Words& more) {
    const Scratch s;
    write_tiny(s);
    Words words = train_tiny({"--training.global_batch_size=8", "--validation.enable",
                              "--validation.split=0.1", "--validation.samples=7"});
    words.insert(words.end(), more.begin(), more.end());
    const base::Json summary = trireme_json(s, words);
    return Validation{summary.at("validation_loss"),
                      metrics(s, "validation").at(4).at("validation_metrics/tokens")};
  };
  const Validation one = validation({micro + "2", workers + "2"});
  EXPECT_EQ(one.tokens, 7 * 16);
  // With the bits of one rank.
  for (const Words& layout : std::vector<Words>{
           {micro + "2", "--parallelism.data_parallel_replicate_degree=2"},
           {micro + "2", workers + "2", "--parallelism.data_parallel_shard_degree=2",
            "--parallelism.zero_stage=1"},
           {micro + "2", workers + "2", "--parallelism.pipeline_parallel_degree=2"}}) {
    const Validation other = validation(layout);
    EXPECT_EQ(other.loss, one.loss) << layout.back();
    EXPECT_EQ(other.tokens, one.tokens) << layout.back();
  }
  // Training with another reduction order gives slightly different weights.
  for (const Words& layout : std::vector<Words>{{micro + "1"},
                                                {micro + "4"},
                                                {micro + "8"},
                                                {"--parallelism.tensor_parallel_degree=2"}}) {
    const Validation other = validation(layout);
    EXPECT_NEAR(other.loss.get<double>(), one.loss.get<double>(), 1e-5) << layout.back();
    EXPECT_EQ(other.tokens, one.tokens) << layout.back();
  }
}

}  // namespace
}  // namespace trireme::tests
