// SPDX-License-Identifier: Apache-2.0
// 8-bit numbers of real runs: a planted drift is named and recorded, the fall-back rebuilds the
// engine, and resumed runs have the weights of uninterrupted ones. tests/drift/run.py measures how
// early alarms come.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using base::Json;

// Six blocks, of which four are in 8 bits. One channel of block 3 grows from step 61 on, so fast
// that the alarm comes within a few steps.
class NumericsRun : public testing::Test {
 protected:
  NumericsRun() {
    std::string model(tiny_model);
    model = replaced(model, "layers = 2", "layers = 6");
    scratch.write("tiny.toml", model);
    scratch.write("text.txt", tiny_text(400));
    std::string config(tiny_config);
    config = replaced(config, "dtype = \"fp32\"", "dtype = \"fp8-tensor\"");
    config = replaced(config, "lr = 1e-2", "lr = 1e-3");
    config = replaced(config, "log_freq = 1", "log_freq = 10");
    config =
        replaced(config, "seq_len = 16", "seq_len = 32\nmax_norm = 1e9\nskip_norm_multiple = 0");
    config += "[lr_scheduler]\ntotal_steps = 110\n[precision]\nbf16_first = 1\nbf16_last = 1\n";
    scratch.write("run.toml", config);
    ::setenv("TRIREME_PLANT_DRIFT", "block=3,channel=5,onset=60,end=85,rate=2", 1);
  }
  ~NumericsRun() override { ::unsetenv("TRIREME_PLANT_DRIFT"); }

  Outcome train(const std::string& folder, int steps, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"train", "run.toml", "--job.dump_folder=" + folder,
                                      "--training.steps=" + std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    return trireme(scratch, words);
  }

  std::vector<Json> lines(const std::string& file, const std::string& kind) {
    std::vector<Json> found;
    std::istringstream text(scratch.read(file));
    for (std::string line; std::getline(text, line);) {
      Json json = Json::parse(line);
      if (json.at("kind") == kind) found.push_back(std::move(json));
    }
    return found;
  }
  // Events of kind numerics that say this.
  std::vector<Json> events(const std::string& folder, const std::string& what) {
    std::vector<Json> found;
    for (const Json& event : lines(folder + "/events.jsonl", "numerics")) {
      if (event.at("data").at("what") == what) found.push_back(event);
    }
    return found;
  }
  std::string weights(const std::string& folder) {
    return scratch.read(folder + "/weights/final/model.safetensors");
  }

  Scratch scratch;
};

TEST_F(NumericsRun, a_drift_is_named_and_recorded) {
  const Outcome run = train("warned", 90);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<Json> alarms = events("warned", "alarm");
  ASSERT_FALSE(alarms.empty()) << run.err;
  EXPECT_EQ(alarms[0].at("data").at("block"), 3);
  EXPECT_GT(alarms[0].at("step"), 60);
  EXPECT_LT(alarms[0].at("step"), 80);
  EXPECT_EQ(alarms[0].at("severity"), "warning");
  EXPECT_TRUE(events("warned", "fallback").empty());
  EXPECT_NE(run.err.find("blocks.3 has grown by"), std::string::npos) << run.err;

  const std::vector<Json> metrics = lines("warned/metrics.jsonl", "numerics");
  ASSERT_EQ(metrics.size(), 10U);  // step 1, and every tenth
  for (const char* tag :
       {"numerics/blocks.1/act/amax", "numerics/blocks.4/up_weight/amax", "numerics/act/flushed",
        "numerics/dy/snr_db", "numerics/h1/headroom_bits", "numerics/out_weight/saturated"}) {
    EXPECT_TRUE(metrics[3].contains(tag)) << tag << " " << metrics[3].dump();
  }
  EXPECT_FALSE(metrics[3].contains("numerics/blocks.0/act/amax"));  // in bf16
  // Step 70. Later the grown row flushes all others of its weight, and act is zero.
  EXPECT_GT(metrics[7].at("numerics/blocks.3/act/amax").get<double>(),
            8 * metrics[3].at("numerics/blocks.3/act/amax").get<double>());
  EXPECT_TRUE(scratch.has("warned/numerics.bin"));
}

TEST_F(NumericsRun, a_block_falls_back_and_a_resumed_run_continues_exactly) {
  const std::vector<std::string> options = {"--precision.fallback=bf16",
                                            "--checkpoint.interval=50"};
  const Outcome whole = train("whole", 100, options);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::vector<Json> changes = events("whole", "fallback");
  ASSERT_EQ(changes.size(), 1U) << whole.err;
  EXPECT_EQ(changes[0].at("data").at("blocks"), Json({3}));
  EXPECT_NE(whole.err.find("blocks.3 is in bf16 from step"), std::string::npos);

  // One attempt ends before the drift, the next one after the fall-back.
  ASSERT_EQ(train("parts", 50, options).exit_code, 0);
  for (const int steps : {90, 100}) {
    std::vector<std::string> again = options;
    again.insert(again.end(), {"--resume", "auto"});
    const Outcome part = train("parts", steps, again);
    ASSERT_EQ(part.exit_code, 0) << part.err;
  }
  EXPECT_EQ(events("parts", "fallback").size(), 1U);
  EXPECT_TRUE(weights("parts") == weights("whole"));
}

TEST_F(NumericsRun, a_block_returns_after_its_steps_or_when_the_user_says_so) {
  const Outcome run =
      train("returns", 100, {"--precision.fallback=bf16", "--precision.fallback_steps=12"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<Json> away = events("returns", "fallback"), back = events("returns", "return");
  ASSERT_FALSE(away.empty());
  ASSERT_FALSE(back.empty());
  EXPECT_EQ(back[0].at("data").at("blocks"), Json({3}));
  EXPECT_EQ(back[0].at("step").get<int>() - away[0].at("step").get<int>(), 12);

  const Outcome chosen =
      train("returns", 102,
            {"--resume", "auto", "--precision.fallback=bf16", "--precision.bf16_blocks=2,3"});
  EXPECT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_NE(chosen.err.find("precision.bf16_blocks"), std::string::npos) << chosen.err;
}

TEST_F(NumericsRun, checkpoints_of_other_data_ranks_are_equal) {
  const std::vector<std::string> batch = {
      "--training.global_batch_size=8", "--training.local_batch_size=1",
      "--parallelism.logical_dp=2", "--parallelism.reduce=each"};
  ASSERT_EQ(train("one", 20, batch).exit_code, 0);
  std::vector<std::string> two = batch;
  two.emplace_back("--parallelism.data_parallel_shard_degree=2");
  ASSERT_EQ(train("two", 20, two).exit_code, 0);
  const Outcome difference = trireme(scratch, {"ckpt", "diff", "one", "two"});
  EXPECT_EQ(difference.exit_code, 0) << difference.out;
}

// The blocks in 8 bits differ between the checkpoints of a folder: the engine must be that of the
// one that is loaded, also if it is an older one because the newest is damaged.
TEST_F(NumericsRun, a_resumed_run_has_the_blocks_of_the_checkpoint_that_is_loaded) {
  const std::vector<std::string> options = {
      "--precision.recipe=fp8-delayed", "--precision.fallback=bf16",
      "--precision.fallback_steps=12", "--checkpoint.interval=2", "--checkpoint.keep_latest_k=0"};
  scratch.write("run.toml", replaced(scratch.read("run.toml"), "dtype = \"fp8-tensor\"\n", ""));
  ::setenv("TRIREME_PLANT_DRIFT", "block=3,channel=5,onset=60,end=80,rate=2", 1);
  const Outcome whole = train("whole", 100, options);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_FALSE(events("whole", "return").empty()) << whole.err;
  const int64_t back = events("whole", "return")[0].at("step").get<int64_t>() / 2 * 2;
  // The copy of the state between two engines has the predicted size.
  const size_t row = whole.out.find("state during a rebuild, on the host");
  ASSERT_NE(row, std::string::npos) << whole.out;
  const std::string line = whole.out.substr(row, whole.out.find('\n', row) - row);
  EXPECT_TRUE(line.ends_with(" 0")) << line;
  // The plant itself cannot be continued to the bit before its end.
  ASSERT_GE(back - 2, 80);
  struct Case {
    int64_t older, newer;
    bool is_damaged;  // the newer one
  };
  for (const Case& c : {Case{back - 2, back + 2, false}, Case{back - 2, back + 2, true}}) {
    const std::string folder = fmt::format("from_{}_{}_{}", c.older, c.newer, c.is_damaged);
    namespace fs = std::filesystem;
    fs::create_directories(scratch.at(folder + "/checkpoint"));
    for (const char* name : {"run.json", "owner.json", "plan.json"}) {
      fs::copy(scratch.at("whole/" + std::string(name)), scratch.at(folder));
    }
    for (const int64_t step : {c.older, c.newer}) {
      const std::string name = fmt::format("checkpoint/step-{:08}", step);
      fs::copy(scratch.at("whole/" + name), scratch.at(folder + "/" + name),
               fs::copy_options::recursive);
    }
    if (c.is_damaged) {
      const std::string data = fmt::format("{}/checkpoint/step-{:08}/data-00000", folder, c.newer);
      std::string bytes = scratch.read(data);
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
      scratch.write(data, bytes);
    }
    std::vector<std::string> again = options;
    again.insert(again.end(), {"--resume", "auto", "--checkpoint.interval=0"});
    const Outcome run = train(folder, 100, again);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const int64_t loaded = c.is_damaged ? c.older : c.newer;
    EXPECT_NE(run.err.find(fmt::format("resume    step {} of", loaded)), std::string::npos)
        << run.err;
    // A second engine is built only if the first was for a checkpoint that could not be loaded.
    EXPECT_EQ(run.err.find("the engine is rebuilt for the checkpoint") != std::string::npos,
              c.is_damaged)
        << run.err;
    const Json found = trireme_json(scratch, {"ckpt", "diff", "whole/checkpoint/step-00000100",
                                              folder + "/checkpoint/step-00000100"});
    EXPECT_TRUE(found.at("ok").get<bool>()) << folder << " " << found;
  }
}

TEST_F(NumericsRun, ranks_and_stages_agree) {
  const Outcome run = train(
      "ranks", 80,
      {"--precision.fallback=bf16", "--training.global_batch_size=8",
       "--parallelism.data_parallel_shard_degree=2", "--parallelism.pipeline_parallel_degree=2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  ASSERT_EQ(events("ranks", "fallback").size(), 1U) << run.err;
  EXPECT_EQ(events("ranks", "alarm")[0].at("data").at("block"), 3);
  const Json last = lines("ranks/metrics.jsonl", "numerics").at(3);
  for (const char* tag : {"numerics/blocks.1/act/amax", "numerics/blocks.4/act/amax"}) {
    EXPECT_TRUE(last.contains(tag)) << last.dump();
  }
}

TEST_F(NumericsRun, recipes_are_compared_with_fp32) {
  for (const char* recipe : {"fp8-tensor", "bf16"}) {
    const Json report = trireme_json(
        scratch, {"verify", "run.toml", "--precision", std::string("--training.dtype=") + recipe});
    EXPECT_EQ(report.at("recipe"), recipe);
    EXPECT_TRUE(report.at("ok").get<bool>()) << report.at("checks").dump(2);
    EXPECT_EQ(report.at("layers").size(), 8U);
    EXPECT_EQ(report.at("numerics").size(), std::string(recipe) == "bf16" ? 0U : 4U);
  }
  const Outcome text = trireme(scratch, {"verify", "run.toml", "--precision"});
  EXPECT_EQ(text.exit_code, 0) << text.out;
  EXPECT_NE(text.out.find("all checks passed"), std::string::npos) << text.out;
}

TEST_F(NumericsRun, a_drift_that_cannot_be_planted_is_refused) {
  ::setenv("TRIREME_PLANT_DRIFT", "block=9", 1);
  const Outcome run = train("bad", 4);
  EXPECT_NE(run.exit_code, 0);
  EXPECT_NE(run.err.find("drift block=9: the model has 6 blocks"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace trireme::tests
