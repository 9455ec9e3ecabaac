// SPDX-License-Identifier: Apache-2.0
// `trireme train` on ranks that are processes: started by us or by others, they give the bits of
// threads, and end together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <memory>

#include "comm/gloo.h"
#include "comm/store_server.h"
#include "comm/store_wire.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

const std::string final_weights = "run/weights/final/model.safetensors";
const Words eight_samples = {"tiny_run.toml", "--training.local_batch_size=1",
                             "--training.global_batch_size=8", "--validation.enable"};

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class LaunchTrain : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
    write_tiny(scratch_);
  }
  Outcome run(const Words& words) { return trireme(scratch_, words); }

  Scratch scratch_;
};

TEST_F(LaunchTrain, processes_threads_and_one_rank_give_the_same_bits) {
  const std::vector<Words> layouts = {{"--parallelism.data_parallel_replicate_degree=4"},
                                      {"--parallelism.data_parallel_shard_degree=4"},
                                      {"--parallelism.data_parallel_replicate_degree=2",
                                       "--parallelism.data_parallel_shard_degree=2"}};
  const Words each = {"--parallelism.reduce=each", "--parallelism.logical_dp=4", "--overwrite"};
  ASSERT_EQ(run(joined(joined({"train"}, eight_samples), each)).exit_code, 0);
  const std::string one = scratch_.read(final_weights);
  for (const Words& layout : layouts) {
    const Words words = joined(joined(eight_samples, each), layout);
    const Outcome threads = run(joined({"train"}, words));
    EXPECT_EQ(threads.exit_code, 0) << threads.err;
    EXPECT_TRUE(scratch_.read(final_weights) == one) << layout[0];
    const Outcome processes = run(joined({"launch", "-n", "4"}, words));
    EXPECT_EQ(processes.exit_code, 0) << processes.err;
    EXPECT_TRUE(scratch_.read(final_weights) == one) << layout[0];
    EXPECT_NE(processes.err.find("rank 0 of 4"), std::string::npos) << processes.err;
    EXPECT_NE(processes.err.find("over Gloo"), std::string::npos) << processes.err;
  }
}

TEST_F(LaunchTrain, tensor_parallel_processes_give_the_bits_of_threads) {
  const Words words = joined(eight_samples, {"--parallelism.tensor_parallel_degree=2",
                                             "--parallelism.data_parallel_shard_degree=2",
                                             "--parallelism.sequence_parallel", "--overwrite"});
  ASSERT_EQ(run(joined({"train"}, words)).exit_code, 0);
  const std::string threads = scratch_.read(final_weights);
  const Outcome processes = run(joined({"launch", "-n", "4"}, words));
  EXPECT_EQ(processes.exit_code, 0) << processes.err;
  EXPECT_TRUE(scratch_.read(final_weights) == threads);
}

TEST_F(LaunchTrain, pipelines_of_processes_give_the_bits_of_one_rank) {
  const Words shared = joined(eight_samples, {"--overwrite", "--parallelism.logical_dp=2"});
  const std::string pp = "--parallelism.pipeline_parallel_degree=";
  const std::string schedule = "--parallelism.pipeline_parallel_schedule=";
  const std::string dp = "--parallelism.data_parallel_replicate_degree=";
  const std::string zero = "--parallelism.data_parallel_shard_degree=";
  for (const std::string reduce : {"--parallelism.reduce=once", "--parallelism.reduce=each"}) {
    ASSERT_EQ(run(joined(joined({"train"}, shared), {reduce})).exit_code, 0);
    const std::string one = scratch_.read(final_weights);
    std::vector<Words> layouts = {{pp + "2", dp + "2", schedule + "interleaved"}};
    if (reduce.ends_with("each")) {
      layouts.push_back({pp + "2", zero + "2"});
    } else {
      layouts.push_back({pp + "4"});
      layouts.push_back({pp + "2", dp + "2", schedule + "dualpipev"});
    }
    for (const Words& layout : layouts) {
      const Outcome processes =
          run(joined({"launch", "-n", "4"}, joined(joined(shared, layout), {reduce})));
      EXPECT_EQ(processes.exit_code, 0) << processes.err;
      EXPECT_TRUE(scratch_.read(final_weights) == one) << layout.front() << layout.back();
    }
  }
}

TEST_F(LaunchTrain, what_no_rank_could_run_starts_none) {
  const Tree before = scratch_.tree();
  const std::vector<std::pair<Words, std::string>> all = {
      {{"-n", "3", "--parallelism.data_parallel_shard_degree=2"},
       "that is 2 ranks, and there are 3"},
      {{"-n", "2", "--training.global_batch_size=3"}, "nearest: 2 or 4"},
      {{"-n", "2", "--parallelism.tensor_parallel_degree=3"}, "heads = 2"},
      {{"-n", "2", "--parallelism.pipeline_parallel_degree=2",
        "--parallelism.pipeline_parallel_schedule=dualpipe"},
       "nearest: dualpipe-v"},
      {{"-n", "2", "--comm.backend=threads"}, "threads are ranks of one process"},
      {{"-n", "2", "--nonsense"}, "--nonsense"},
      {{"-n", "2", "--comm.deadline_s=0"}, "comm.deadline_s = 0"},
  };
  for (const auto& [words, message] : all) {
    const Outcome outcome =
        run(joined({"launch"}, joined(words, {"tiny_run.toml", "--training.local_batch_size=1"})));
    EXPECT_EQ(outcome.exit_code, 2) << message;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("[rank"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(scratch_.tree(), before);
}

TEST_F(LaunchTrain, a_reason_of_all_ranks_is_told_once_on_top) {
  const Outcome outcome =
      run({"launch", "-n", "2", "tiny_run.toml", "--training.dataset_path=gone"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(outcome.err.starts_with("error: rank ")) << outcome.err;
  EXPECT_NE(outcome.err.find("failed: gone: does not exist"), std::string::npos) << outcome.err;
}

TEST_F(LaunchTrain, a_signal_finishes_the_step_and_saves) {
  Running running(scratch_.path(),
                  trireme_command(joined({"launch", "-n", "2"},
                                         joined(eight_samples, {"--training.steps=100000000",
                                                                "--metrics.log_freq=100000"}))));
  ASSERT_TRUE(running.wait_for([&] { return running.err().find("step: ") != std::string::npos; }))
      << running.err();
  running.signal(SIGTERM);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
  EXPECT_NE(outcome.err.find("asked to stop"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("is saved; --resume auto continues"), std::string::npos)
      << outcome.err;
  EXPECT_FALSE(scratch_.has(final_weights));  // the run is not finished
}

// The process of a rank that was started in this folder; 0: there is none.
pid_t train_process_of(const Scratch& scratch, int rank) {
  const std::string wanted = fmt::format("TRIREME_RANK={}", rank);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code error;
    const auto id = comm::integer_from(entry.path().filename().string());
    if (!id || std::filesystem::read_symlink(entry.path() / "cwd", error) != scratch.path())
      continue;
    std::ifstream environment(entry.path() / "environ");
    for (std::string word; std::getline(environment, word, '\0');) {
      if (word == wanted) return static_cast<pid_t>(*id);
    }
  }
  return 0;
}

TEST_F(LaunchTrain, a_rank_that_is_killed_is_named) {
  for (const int rank : {0, 1}) {
    const std::string folder = fmt::format("run{}", rank);
    Running running(
        scratch_.path(),
        trireme_command(joined(
            {"launch", "-n", "2"},
            joined(eight_samples, {"--training.steps=100000000", "--job.dump_folder=" + folder}))));
    ASSERT_TRUE(running.wait_for([&] { return running.err().find("step: ") != std::string::npos; }))
        << running.err();
    const pid_t process = train_process_of(scratch_, rank);
    ASSERT_GT(process, 0);
    ASSERT_EQ(::kill(process, SIGKILL), 0);
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.err.find(fmt::format("error: rank {} (process {}", rank, process)),
              std::string::npos)
        << outcome.err;
    EXPECT_TRUE(scratch_.has(folder + fmt::format("/flight/rank{}.json", 1 - rank)));
  }
}

TEST_F(LaunchTrain, torchruns_environment_is_enough) {
  const Words run_words = joined({"train"}, eight_samples);
  ASSERT_EQ(run(joined(run_words, {"--parallelism.data_parallel_shard_degree=2"})).exit_code, 0);
  const std::string threads = scratch_.read(final_weights);
  int port = 0;
  { port = comm::StoreServer({.host = "127.0.0.1"}).port(); }  // a free one
  std::vector<std::unique_ptr<Running>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const Words environment = {"/usr/bin/env",
                               fmt::format("RANK={}", rank),
                               "WORLD_SIZE=2",
                               fmt::format("LOCAL_RANK={}", rank),
                               "LOCAL_WORLD_SIZE=2",
                               "MASTER_ADDR=127.0.0.1",
                               fmt::format("MASTER_PORT={}", port),
                               "SLURM_PROCID=5",
                               "SLURM_NTASKS=8",
                               "SLURM_STEP_ID=0"};
    ranks.push_back(std::make_unique<Running>(
        scratch_.path(), joined(environment, joined(trireme_command(run_words), {"--overwrite"}))));
  }
  const Outcome first = ranks[0]->wait(), second = ranks[1]->wait();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(first.err.find("rank 0 of 2, local rank 0 of 2 on node 0, from torchrun"),
            std::string::npos)
      << first.err;
  EXPECT_NE(first.err.find("torchrun is believed"), std::string::npos) << first.err;
  EXPECT_EQ(second.out, "");
  EXPECT_TRUE(scratch_.read(final_weights) == threads);
}

}  // namespace
}  // namespace trireme::tests
