// SPDX-License-Identifier: Apache-2.0
// `trireme eval` and `trireme generate` on a run's folder, a checkpoint and exported weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;
namespace fs = std::filesystem;

const std::string newest = "run/checkpoint/step-00000004", older = "run/checkpoint/step-00000002";

// Runs four steps with checkpoints of steps 2 and 4, on two tensor-parallel ranks.
struct TrainedRun {
  TrainedRun() {
    write_tiny(s);
    summary =
        trireme_json(s, {"train", "tiny_run.toml", "--checkpoint.interval=2", "--validation.enable",
                         "--validation.samples=5", "--parallelism.tensor_parallel_degree=2"});
  }
  base::Json eval(const Words& words) const {
    Words all = {"eval", "--batch", "2"};
    all.insert(all.end(), words.begin(), words.end());
    return trireme_json(s, all);
  }
  base::Json on_text(const std::string& weights) const {
    return eval({weights, "--data", "text.txt"});
  }
  base::Json tokens(const std::string& weights) const {
    return trireme_json(s, {"generate", weights, "--prompt", "9 bottles", "--tokens", "8"})
        .at("tokens");
  }
  Scratch s;
  base::Json summary;
};

TEST(TrainedWeights, a_runs_folder_means_its_final_weights) {
  const TrainedRun run;
  const base::Json by_run = run.on_text("run");
  const base::Json by_weights = run.eval({"--weights", "run/weights/final", "--data", "text.txt"});
  EXPECT_EQ(by_run, by_weights);
  EXPECT_EQ(by_run.at("weights").at("path"), "run/weights/final");
  EXPECT_EQ(run.tokens("run"), run.tokens("run/weights/final"));
}

TEST(TrainedWeights, the_validation_data_of_the_run_is_the_default) {
  const Scratch s;
  write_tiny(s);
  const base::Json summary =
      trireme_json(s, {"train", "tiny_run.toml", "--validation.enable", "--validation.samples=5"});
  for (const std::string path : {"run", "run/weights/final", "run/checkpoint"}) {
    const base::Json loss = trireme_json(s, {"eval", path, "--batch", "2"});
    // To the bit: the same sums, added in the same order.
    EXPECT_EQ(loss.at("loss"), summary.at("validation_loss")) << path;
    EXPECT_EQ(loss.at("tokens"), 5 * 16) << path;
  }
  EXPECT_GT(trireme_json(s, {"eval", "run", "--limit", "0"}).at("tokens"), 5 * 16);
  EXPECT_EQ(trireme_json(s, {"eval", "run", "--limit", "2"}).at("tokens"), 2 * 16);
}

TEST(TrainedWeights, in_8_bits_the_loss_is_that_of_a_run_in_8_bits) {
  const Scratch s;
  write_tiny(s);
  const base::Json summary =
      trireme_json(s, {"train", "tiny_run.toml", "--validation.enable", "--validation.samples=4",
                       "--training.local_batch_size=2", "--training.dtype=fp8-tensor"});
  const Words call = {"eval", "run/checkpoint", "--batch", "2", "--dtype", "fp8-tensor"};
  EXPECT_EQ(trireme_json(s, call).at("loss"), summary.at("validation_loss"));
}

TEST(TrainedWeights, one_block_at_a_time_is_in_8_bits) {
  const Scratch s;
  write_tiny(s);
  trireme_json(s, {"train", "tiny_run.toml", "--training.steps=60"});
  const auto eval = [&s](const Words& more) {
    Words all = {"eval", "run/checkpoint", "--batch", "2", "--data", "text.txt", "--seq", "16"};
    all.insert(all.end(), more.begin(), more.end());
    return trireme_json(s, all);
  };
  const base::Json found = eval({"--dtype", "fp8-tensor", "--by-block"});
  const base::Json& by_block = found.at("by_block");
  EXPECT_EQ(by_block.at("loss_bf16"), eval({"--dtype", "bf16"}).at("loss"));
  ASSERT_EQ(by_block.at("blocks").size(), 2U);
  const auto loss = [&](size_t block) {
    return by_block.at("blocks").at(block).at("loss").get<double>();
  };
  const double bf16 = by_block.at("loss_bf16"), all = found.at("loss");
  EXPECT_NE(loss(0), bf16);
  EXPECT_NE(loss(1), bf16);
  EXPECT_NE(loss(0), loss(1));
  for (const double one : {loss(0), loss(1), all}) EXPECT_NEAR(one, bf16, 0.02 * bf16);
  const Outcome text = trireme(s, {"eval", "run/checkpoint", "--batch", "2", "--data", "text.txt",
                                   "--seq", "16", "--dtype", "fp8-tensor", "--by-block"});
  EXPECT_NE(text.out.find("none (bf16) | " + fmt::format("{:.6f}", bf16)), std::string::npos)
      << text.out;
}

TEST(TrainedWeights, a_checkpoint_has_the_bits_of_its_export) {
  const TrainedRun run;
  ASSERT_EQ(trireme(run.s, {"ckpt", "export", older, "--out", "exported"}).exit_code, 0);
  const base::Json from_checkpoint = run.on_text(older), from_export = run.on_text("exported");
  EXPECT_EQ(from_checkpoint.at("sequences"), from_export.at("sequences"));
  EXPECT_EQ(from_checkpoint.at("weights").at("step"), 2);
  EXPECT_EQ(run.tokens(older), run.tokens("exported"));
  // A checkpoint without a run.
  ASSERT_EQ(trireme(run.s, {"ckpt", "import", "exported", "--into", "to_come"}).exit_code, 0);
  EXPECT_EQ(run.on_text("to_come").at("sequences"), from_export.at("sequences"));
  EXPECT_NE(from_checkpoint.at("loss"), run.on_text("run").at("loss"));
}

TEST(TrainedWeights, without_final_weights_the_newest_checkpoint_is_used) {
  const TrainedRun run;
  const base::Json of_final = run.on_text("run");
  fs::remove_all(run.s.at("run/weights"));
  for (const std::string path : {"run", "run/checkpoint", "run/checkpoint/", newest.c_str()}) {
    const base::Json loss = run.on_text(path);
    EXPECT_EQ(loss.at("sequences"), of_final.at("sequences")) << path;
    EXPECT_EQ(loss.at("weights").at("step"), 4) << path;
  }
  const Outcome outcome = trireme(run.s, {"generate", "run", "--prompt", "9", "--tokens", "3"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("checkpoint of step 4 in run/checkpoint"), std::string::npos)
      << outcome.err;
}

TEST(TrainedWeights, final_weights_older_than_checkpoints_are_not_used) {
  const TrainedRun run;
  const fs::path config = run.s.at("run/weights/final/config.json");
  fs::last_write_time(config, fs::last_write_time(config) - std::chrono::hours(1));
  EXPECT_EQ(run.on_text("run").at("weights").at("step"), 4);
}

TEST(TrainedWeights, a_damaged_checkpoint_is_skipped_unless_it_is_named) {
  const TrainedRun run;
  fs::remove_all(run.s.at("run/weights"));
  const base::Json of_older = run.on_text(older);
  std::string bytes = run.s.read(newest + "/data-00000");
  for (size_t at = 0; at < bytes.size(); at += 64) bytes[at] = static_cast<char>(~bytes[at]);
  run.s.write(newest + "/data-00000", bytes);
  const Outcome outcome = trireme(run.s, {"eval", "run", "--data", "text.txt"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"checkpoint of step 4 skipped", "checkpoint of step 2 in"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run.on_text("run").at("sequences"), of_older.at("sequences"));
  const Outcome named = trireme(run.s, {"eval", newest, "--data", "text.txt"});
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_NE(named.err.find("data-00000"), std::string::npos) << named.err;
}

TEST(TrainedWeights, what_is_missing_is_named) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml"}).exit_code, 0);
  fs::create_directory(s.at("empty"));
  fs::copy(s.at("run/weights/final"), s.at("w"));
  struct Case {
    Words words;
    int exit_code;
    const char* part;
  };
  for (const Case& c : std::vector<Case>{
           {{"eval", "run"}, 2, "run/run.json has no validation data (validation.enable = false)"},
           {{"eval", "w"}, 2, "--data is missing, and these weights belong to no run"},
           {{"eval", "--data", "text.txt"}, 2, "no weights are given"},
           {{"eval", "w", "--weights", "w", "--data", "text.txt"}, 2, "given twice"},
           {{"eval", "w", "--data", "text.txt", "--by-block"},
            2,
            "--by-block needs --dtype fp8-tensor or fp8-block, not fp32"},
           {{"eval", "w", "--tasks", "text.txt", "--dtype", "fp8-block"},
            2,
            "--dtype fp8-block: tasks are answered in fp32 or bf16"},
           {{"eval", "w", "--data", "text.txt", "--limit", "-1"},
            2,
            "--limit -1: 0 (all) or above"},
           {{"eval", "empty", "--data", "text.txt"}, 1, "neither a run's folder nor a checkpoint"},
           {{"generate", "run/checkpoint/step-00000099"}, 1, "no such folder"}}) {
    const Outcome outcome = trireme(s, c.words);
    EXPECT_EQ(outcome.exit_code, c.exit_code) << outcome.err;
    EXPECT_NE(outcome.err.find(c.part), std::string::npos) << c.part << "\n" << outcome.err;
  }
}

}  // namespace
}  // namespace trireme::tests
