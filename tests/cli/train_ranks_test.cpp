// SPDX-License-Identifier: Apache-2.0
// `trireme train` on several ranks that are threads of one process.
#include <gtest/gtest.h>

#include <csignal>

#include "base/text/json.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

// Two micro-batches for each of four data-parallel ranks.
const Words four_workers = {"--training.local_batch_size=1", "--training.global_batch_size=8",
                            "--parallelism.logical_dp=4",    "--validation.enable",
                            "--validation.steps=3",          "--optimizer.weight_decay=0.1"};

Words train_words(const Words& more) {
  Words words = {"train", "tiny_run.toml"};
  words.insert(words.end(), four_workers.begin(), four_workers.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Result {
  std::string weights;
  base::Json summary;
};
Result result_of(const Words& more) {
  const Scratch s;
  write_tiny(s);
  const base::Json summary = trireme_json(s, train_words(more));
  return {s.has(final_weights) ? s.read(final_weights) : "", summary};
}

TEST(TrainRanks, every_layout_gives_the_bits_of_one_rank) {
  const std::string dp = "--parallelism.data_parallel_replicate_degree=";
  const std::string zero = "--parallelism.data_parallel_shard_degree=";
  const std::string stage = "--parallelism.zero_stage=";
  for (const std::string reduce : {"--parallelism.reduce=once", "--parallelism.reduce=each"}) {
    const Result one = result_of({reduce});
    ASSERT_FALSE(one.weights.empty());
    std::vector<Words> layouts = {
        {dp + "2"}, {dp + "4"}, {zero + "2", stage + "1"}, {dp + "2", zero + "2", stage + "1"}};
    if (reduce.ends_with("each")) {
      layouts.insert(layouts.end(),
                     {{zero + "4"}, {zero + "2", stage + "2"}, {dp + "2", zero + "2"}});
    }
    for (Words layout : layouts) {
      const std::string name = layout.back();
      layout.push_back(reduce);
      const Result several = result_of(layout);
      EXPECT_TRUE(several.weights == one.weights) << name << " " << reduce;
      // The loss is summed per rank first, so its last bits depend on the layout.
      EXPECT_NEAR(several.summary["loss"].get<double>(), one.summary["loss"].get<double>(), 1e-9);
      EXPECT_EQ(several.summary["validation_loss"], one.summary["validation_loss"]);
      EXPECT_EQ(several.summary["tokens"], one.summary["tokens"]);
      EXPECT_GT(several.summary["ranks"].size(), 1U);
      for (const base::Json& rank : several.summary["ranks"]) {
        EXPECT_EQ(rank["memory_predicted_bytes"], rank["memory_measured_bytes"]) << name;
        EXPECT_EQ(rank["traffic_predicted_bytes"], rank["traffic_counted_bytes"]) << name;
        EXPECT_GT(rank["traffic_counted_bytes"], 0) << name;
      }
    }
  }
}

const std::string pp = "--parallelism.pipeline_parallel_degree=";
const std::string schedule_is = "--parallelism.pipeline_parallel_schedule=";

void expect_predictions(const Result& result, const std::string& name) {
  for (const base::Json& rank : result.summary["ranks"]) {
    EXPECT_EQ(rank["memory_predicted_bytes"], rank["memory_measured_bytes"]) << name;
    EXPECT_EQ(rank["traffic_predicted_bytes"], rank["traffic_counted_bytes"]) << name;
  }
}

TEST(TrainRanks, every_pipeline_gives_the_bits_of_one_rank) {
  const Words one_worker = {"--parallelism.logical_dp=1", "--validation.freq=2"};
  const Result one = result_of(one_worker);
  for (const Words& layout : std::vector<Words>{{pp + "4", schedule_is + "GPipe"},
                                                {pp + "2"},
                                                {pp + "4"},
                                                {pp + "2", schedule_is + "Interleaved"},
                                                {pp + "2", schedule_is + "zb-h1"},
                                                {pp + "2", schedule_is + "ZBH2"},
                                                {pp + "2", schedule_is + "zb-v"},
                                                {pp + "2", schedule_is + "DualPipeV"}}) {
    Words words = one_worker;
    words.insert(words.end(), layout.begin(), layout.end());
    const Result several = result_of(words);
    const std::string name = layout.front() + layout.back();
    EXPECT_TRUE(several.weights == one.weights) << name;
    EXPECT_EQ(several.summary["validation_loss"], one.summary["validation_loss"]) << name;
    EXPECT_EQ(several.summary["tokens"], one.summary["tokens"]) << name;
    EXPECT_NEAR(several.summary["loss"].get<double>(), one.summary["loss"].get<double>(), 1e-9);
    expect_predictions(several, name);
  }
}

TEST(TrainRanks, pipelines_with_data_axes_give_the_bits_of_one_rank) {
  const std::string dp = "--parallelism.data_parallel_replicate_degree=";
  const std::string zero = "--parallelism.data_parallel_shard_degree=";
  const std::string stage = "--parallelism.zero_stage=";
  const std::string reshard = "--parallelism.fsdp_reshard_after_forward=";
  const Result once = result_of({"--parallelism.reduce=once"});
  const Result each = result_of({"--parallelism.reduce=each"});
  const auto expect_same = [](const Words& layout, const Result& one) {
    const Result several = result_of(layout);
    EXPECT_TRUE(several.weights == one.weights) << layout.back();
    EXPECT_EQ(several.summary["validation_loss"], one.summary["validation_loss"]);
    expect_predictions(several, layout.back());
  };
  expect_same({pp + "2", dp + "2"}, once);
  expect_same({pp + "2", dp + "4", schedule_is + "zb-h1"}, once);
  expect_same({pp + "2", zero + "2", stage + "1"}, once);
  expect_same({pp + "2", zero + "2", stage + "2"}, each);
  expect_same({pp + "2", zero + "2"}, each);
  expect_same({pp + "2", zero + "4", reshard + "always"}, each);
  expect_same({pp + "2", dp + "2", zero + "2", schedule_is + "interleaved"}, each);
}

TEST(TrainRanks, a_pipeline_runs_a_custom_cut_and_schedule) {
  const Words few = {"--parallelism.logical_dp=1", "--training.global_batch_size=2"};
  const auto weights = [&](const Words& more, std::string* printed = nullptr) {
    const Scratch s;
    write_tiny(s);
    s.write("mine.txt", "0F0 0F1 0B0 0B1 0W0 0W1\n1F0 1F1 1B0 1W0 1B1 1W1\n");
    Words words = train_words(few);
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = trireme(s, words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    if (printed != nullptr) *printed = outcome.err;
    return s.read(final_weights);
  };
  const std::string one = weights({});
  std::string printed;
  EXPECT_TRUE(one == weights({pp + "2", "--parallelism.pipeline_parallel_first_layers=0,3",
                              "--parallelism.pipeline_parallel_schedule_file=mine.txt",
                              "--parallelism.pipeline_parallel_send_buffers=1"},
                             &printed));
  for (const char* part : {"pp 2 by a custom schedule, stages from 0/3", "stages    2 on 2 ranks", "rank 0: layers 0-2",
                           "rank 1: layers 3", "on the largest rank"}) {
    EXPECT_NE(printed.find(part), std::string::npos) << part << "\n" << printed;
  }
}

TEST(TrainRanks, generate_reads_the_weights_of_a_pipeline) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, train_words({pp + "2"})).exit_code, 0);
  const Outcome outcome =
      trireme(s, {"generate", "run/weights/final", "--prompt", "9 bottles", "--tokens", "4"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(TrainRanks, tensor_parallel_is_close_to_one_rank_and_the_same_for_every_data_layout) {
  const double loss = result_of({}).summary["loss"].get<double>();
  for (const std::string sequence : {"false", "true"}) {
    const Words tp = {"--parallelism.tensor_parallel_degree=2",
                      "--parallelism.sequence_parallel=" + sequence};
    const auto with_tp = [&](const Words& more) {
      Words words = tp;
      words.insert(words.end(), more.begin(), more.end());
      return result_of(words);
    };
    const Result two = with_tp({}),
                 four = with_tp({"--parallelism.data_parallel_replicate_degree=2"});
    EXPECT_NEAR(two.summary["loss"].get<double>(), loss, 1e-5 * loss) << sequence;
    EXPECT_TRUE(two.weights == four.weights) << sequence;
    EXPECT_EQ(two.summary["validation_loss"], four.summary["validation_loss"]);
    EXPECT_EQ(four.summary["ranks"].size(), 4U);
    for (const base::Json& rank : four.summary["ranks"]) {
      EXPECT_EQ(rank["memory_predicted_bytes"], rank["memory_measured_bytes"]);
      EXPECT_EQ(rank["traffic_predicted_bytes"], rank["traffic_counted_bytes"]);
    }
  }
}

TEST(TrainRanks, prints_the_layout) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome = trireme(
      s, train_words({"--parallelism.data_parallel_shard_degree=2", "--parallelism.zero_stage=1"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"2 as threads of this process", "layout    dp 2 ZeRO-1",
                           "2 data ranks x 4 x 1 sequences", "on every rank"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << "\n" << outcome.err;
  }
  EXPECT_NE(outcome.out.find("bytes sent, predicted"), std::string::npos) << outcome.out;
  // Only the first rank prints.
  EXPECT_EQ(outcome.err.find("step:  1"), outcome.err.rfind("step:  1"));
}

TEST(TrainRanks, the_layout_names_context_parallelism) {
  const Scratch s;
  write_tiny(s);
  const Outcome context = trireme(s, train_words({"--parallelism.context_parallel_degree=2"}));
  EXPECT_NE(context.err.find("layout    cp 2"), std::string::npos) << context.err;
}

TEST(TrainRanks, debug_mode_finds_nothing_and_changes_no_bit) {
  const Words layout = {"--parallelism.tensor_parallel_degree=2",
                        "--parallelism.data_parallel_shard_degree=2", "--parallelism.logical_dp=2"};
  Words debug = layout;
  debug.emplace_back("--comm.debug");
  EXPECT_TRUE(result_of(layout).weights == result_of(debug).weights);
}

TEST(TrainRanks, steps_are_captured_over_nccl_only) {
  const Scratch s;
  write_tiny(s);
  const Outcome outcome = trireme(
      s, train_words({"--parallelism.data_parallel_shard_degree=2", "--comm.capture=true"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("only steps of ranks over nccl can be captured"), std::string::npos)
      << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(s.at("run")));
}

TEST(TrainRanks, start_from_weights_and_run_json_give_the_same_bits) {
  const Scratch s;
  write_tiny(s);
  ASSERT_EQ(trireme(s, {"train", "tiny_run.toml"}).exit_code, 0);
  std::filesystem::rename(s.at("run/weights/final"), s.at("w"));
  const auto weights = [&](const Words& more) {
    Words words = train_words({"--init-from", "w", "--overwrite"});
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(trireme(s, words).exit_code, 0);
    return s.read(final_weights);
  };
  const std::string one = weights({"--parallelism.reduce=each"});
  const std::string sharded = weights({"--parallelism.data_parallel_shard_degree=4"});
  EXPECT_TRUE(one == sharded);
  ASSERT_EQ(trireme(s, {"train", "run/run.json", "--overwrite"}).exit_code, 0);
  EXPECT_TRUE(one == s.read(final_weights));
}

TEST(TrainRanks, all_ranks_stop_and_save_at_the_same_step) {
  const Scratch s;
  write_tiny(s);
  Running running(
      s.path(),
      trireme_command(train_words({"--training.steps=100000000", "--metrics.log_freq=1000000",
                                   "--parallelism.data_parallel_shard_degree=4", "--json"})));
  ASSERT_TRUE(running.wait_for([&] { return running.err().find("step: ") != std::string::npos; }));
  running.signal(SIGUSR1);
  EXPECT_TRUE(running.wait_for([&] {
    return running.err().find("weights   run/weights/step-") != std::string::npos;
  })) << running.err();
  running.signal(SIGTERM);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
  EXPECT_EQ(only_object(outcome.out)["stopped"], true);
  EXPECT_FALSE(s.has(final_weights));
}

TEST(TrainRanks, a_failure_on_one_rank_ends_all_with_its_reason) {
  const Scratch s;
  write_tiny(s);
  // Simulates a full disk: the first rank cannot write the weights, and the others wait for it.
  const Outcome outcome = trireme(s, train_words({"--parallelism.data_parallel_shard_degree=2"}),
                                  {.max_file_bytes = 8000});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("model.safetensors"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("left its group"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace trireme::tests
