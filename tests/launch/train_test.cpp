// SPDX-License-Identifier: Apache-2.0
// `trireme train` with ranks as processes: started by `trireme launch` or by another launcher, they
// produce the bits of threads, and end together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "comm/gloo.h"
#include "comm/store/store.h"
#include "comm/store/store_server.h"
#include "comm/store/store_wire.h"
#include "comm/world/job_token.h"
#include "tests/cli/program.h"
#include "tests/cli/trace/trace_reader.h"

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

TEST_F(LaunchTrain, data_that_is_cut_off_is_in_the_verdict_and_in_the_record) {
  Running running(scratch_.path(),
                  trireme_command({"launch", "-n", "2", "--no-elastic", "tiny_run.toml",
                                   "--training.steps=100000000", "--metrics.log_freq=1000000",
                                   "--parallelism.data_parallel_replicate_degree=2"}));
  ASSERT_TRUE(running.wait_for([&] {
    return scratch_.has("run/metrics.jsonl") && !scratch_.read("run/metrics.jsonl").empty();
  })) << running.err();
  std::filesystem::resize_file(scratch_.at("text.txt"), 0);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const std::string cause = " ended with exit code 1: text.txt: byte ";
  EXPECT_NE(outcome.err.find(cause), std::string::npos) << outcome.err;
  EXPECT_NE(scratch_.read("run/events.jsonl").find(cause), std::string::npos);
  const std::string diagnosis = run({"diagnose", "run"}).out;
  EXPECT_NE(diagnosis.find("text.txt: byte "), std::string::npos) << diagnosis;
}

TEST_F(LaunchTrain, a_trace_of_processes_is_one_file_with_all_ranks) {
  const Words layout = {"--parallelism.data_parallel_shard_degree=2", "--parallelism.zero_stage=3",
                        "--trace-steps", "2:3"};
  const Outcome outcome = run(joined({"launch", "-n", "2"}, joined(eight_samples, layout)));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const ReadTrace trace = read_trace(scratch_.read("run/trace_steps_2-3.json"));
  EXPECT_EQ(trace.ranks,
            (std::map<int, std::string>{{0, "rank 0 (zero 0)"}, {1, "rank 1 (zero 1)"}}));
  expect_complete_communication(trace);
  std::map<int, std::set<std::string>> ops;
  for (const ReadSlice& slice : trace.of_category("communication")) {
    ops[slice.rank].insert(slice.name);
  }
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(ops[rank].contains("all_gather") && ops[rank].contains("reduce_scatter")) << rank;
  }
  for (const base::Json& clock : trace.other_data.at("clocks")) {
    EXPECT_EQ(clock.at("method"), "host clock");
    EXPECT_GE(clock.at("error_us"), 0);
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

// Keys that are left open take the saved values on fewer ranks, and on more ranks again.
TEST_F(LaunchTrain, open_keys_take_the_saved_values_on_other_ranks) {
  const auto launch = [&](const std::string& ranks, const Words& more) {
    return run(joined(
        {"launch", "-n", ranks, "tiny_run.toml", "--training.local_batch_size=1",
         "--lr_scheduler.total_steps=6", "--checkpoint.interval=2", "--checkpoint.keep_latest_k=0"},
        more));
  };
  ASSERT_EQ(launch("4", {"--training.steps=6"}).exit_code, 0);
  const std::string expected = scratch_.read(final_weights);
  const Outcome fewer = launch("1", {"--training.steps=4", "--resume", "2"});
  ASSERT_EQ(fewer.exit_code, 0) << fewer.err;
  const Outcome more = launch("2", {"--training.steps=6", "--resume", "auto"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_NE(more.err.find("resume    step 4 of"), std::string::npos) << more.err;
  for (const Outcome* outcome : {&fewer, &more}) {
    EXPECT_EQ(outcome->err.find("not bit for bit"), std::string::npos) << outcome->err;
  }
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
  // Three ranks cannot be the four workers of the saved run.
  const Outcome many = launch("3", {"--training.steps=6", "--resume", "2"});
  EXPECT_EQ(many.exit_code, 2) << many.err;
  EXPECT_NE(many.err.find("the saved one needs --parallelism.logical_dp=4 "
                          "--training.global_batch_size=4, which this layout does not allow"),
            std::string::npos)
      << many.err;
}

TEST_F(LaunchTrain, a_configuration_that_no_rank_can_run_starts_none) {
  const Tree before = scratch_.tree();
  const std::vector<std::pair<Words, std::string>> all = {
      {{"-n", "3", "--parallelism.data_parallel_shard_degree=2"},
       "that needs 2 ranks, but there are 3"},
      {{"-n", "2", "--training.global_batch_size=3"}, "nearest: 2 or 4"},
      {{"-n", "2", "--parallelism.tensor_parallel_degree=3"}, "heads = 2"},
      {{"-n", "2", "--parallelism.pipeline_parallel_degree=2",
        "--parallelism.pipeline_parallel_schedule=dualpipe"},
       "nearest: dualpipe-v"},
      {{"-n", "2", "--comm.backend=threads"}, "threads are ranks of one process"},
      {{"-n", "2", "--nonsense"}, "--nonsense"},
      {{"-n", "2", "--comm.deadline_s=0"}, "comm.deadline_s = 0"},
      {{"-n", "2", "--trace-steps", "3-5"}, "--trace-steps 3-5: must be first:last"},
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

TEST_F(LaunchTrain, a_reason_of_all_ranks_is_printed_once_at_the_top) {
  const Outcome outcome =
      run({"launch", "-n", "2", "tiny_run.toml", "--training.dataset_path=gone"});
  EXPECT_EQ(outcome.exit_code, 2);
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
  EXPECT_NE(outcome.err.find("stop requested"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("is saved; --resume auto continues"), std::string::npos)
      << outcome.err;
  EXPECT_FALSE(scratch_.has(final_weights));  // the run is not finished
}

// Returns the process of a rank that was started in this folder; 0 if there is none.
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
            {"launch", "-n", "2", "--no-elastic"},
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
    EXPECT_TRUE(scratch_.has(folder + fmt::format("/flight/rank_{}.json", 1 - rank)));
  }
}

// A long run of a tiny model, saved often.
const Words saved_often = {"--training.steps=160",       "--checkpoint.interval=5",
                           "--metrics.log_freq=1000",    "--validation.enable=false",
                           "--parallelism.logical_dp=4", "--parallelism.reduce=each"};

bool has_checkpoint(const Scratch& scratch) {
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(scratch.at("run/checkpoint"), ignored)) {
    if (entry.path().filename().string().find('.') == std::string::npos) return true;
  }
  return false;
}

// Killed under `launch`, resumed under `launch`, manually and automatically; options in any order.
TEST_F(LaunchTrain, a_killed_run_resumes_from_its_checkpoint) {
  const Words words = joined(eight_samples, saved_often);
  ASSERT_EQ(run(joined({"train"}, joined(words, {"--job.dump_folder=quiet"}))).exit_code, 0);
  const std::string quiet = scratch_.read("quiet/weights/final/model.safetensors");
  for (const bool restarts : {false, true}) {
    std::filesystem::remove_all(scratch_.at("run"));
    Words first = {"launch", "-n", "2", "--no-elastic"};
    if (restarts) first.insert(first.end(), {"--restarts", "1"});
    Running running(scratch_.path(), trireme_command(joined(first, words)));
    ASSERT_TRUE(running.wait_for([&] { return has_checkpoint(scratch_); })) << running.err();
    const pid_t process = train_process_of(scratch_, 1);
    ASSERT_GT(process, 0);
    ASSERT_EQ(::kill(process, SIGKILL), 0);
    Outcome outcome = running.wait();
    if (!restarts) {
      EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
      outcome = run(joined({"launch", "--resume", "auto", "-n", "1"}, words));
    } else {
      // At once: the run has saved a step.
      EXPECT_NE(outcome.err.find("restart 1 of 1: from"), std::string::npos) << outcome.err;
    }
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("resume    step "), std::string::npos) << outcome.err;
    EXPECT_TRUE(scratch_.read(final_weights) == quiet);
  }
}

TEST_F(LaunchTrain, three_starts_that_save_nothing_end_the_job) {
  const Words words = joined(eight_samples, {"--training.steps=100000", "--checkpoint.interval=0"});
  Running running(scratch_.path(), trireme_command(joined(
                                       {"launch", "-n", "2", "--no-elastic", "--restarts", "9",
                                        "--json"},
                                       words)));
  pid_t killed = 0;
  for (int start = 0; start < 3; ++start) {
    pid_t process = 0;
    ASSERT_TRUE(running.wait_for([&] {
      process = train_process_of(scratch_, 1);
      return process > 0 && process != killed;
    })) << running.err();
    ASSERT_EQ(::kill(process, SIGKILL), 0);
    killed = process;
  }
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  EXPECT_NE(outcome.err.find("restart 1 of 9 in 1 s"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("restart 2 of 9 in 2 s"), std::string::npos) << outcome.err;
  const base::Json result = base::Json::parse(outcome.out);
  EXPECT_EQ(result.at("reason"),
            "3 starts in a row saved no step newer than the start: the job is "
            "not started again");
}

// A rank as torchrun, or a user, would start it.
std::unique_ptr<Running> start_rank(const Scratch& scratch, int rank, int port, const Words& more) {
  const Words environment = {"/usr/bin/env",
                             fmt::format("RANK={}", rank),
                             "WORLD_SIZE=2",
                             fmt::format("LOCAL_RANK={}", rank),
                             "LOCAL_WORLD_SIZE=2",
                             "MASTER_ADDR=127.0.0.1",
                             fmt::format("MASTER_PORT={}", port)};
  return std::make_unique<Running>(
      scratch.path(),
      joined(environment, trireme_command(joined(joined({"train"}, eight_samples), more))));
}

int free_port() { return comm::StoreServer({.host = "127.0.0.1"}).port(); }

TEST_F(LaunchTrain, ranks_that_differ_are_refused_and_the_difference_is_named) {
  scratch_.write("other.txt", "z" + scratch_.read("text.txt").substr(1));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--optimizer.lr=0.1", "optimizer.lr: 0.01 there, 0.1 here"},
      {"--debug.seed=7", "debug.seed: 0 there, 7 here"},
      {"--training.seq_len=8", "training.seq_len: 16 there, 8 here"},
      {"--training.steps=9", "training.steps: 4 there, 9 here"},
      {"--training.dtype=bf16", "training.dtype: \"fp32\" there, \"bf16\" here"},
      {"--training.dataset_path=other.txt", "data.training.token_hash: "}};
  for (const auto& [change, message] : cases) {
    const int port = free_port();
    const auto first = start_rank(scratch_, 0, port, {});
    const auto second = start_rank(scratch_, 1, port, {change});
    const Outcome zero = first->wait(), one = second->wait();
    EXPECT_NE(zero.exit_code, 0) << change;
    EXPECT_EQ(one.exit_code, 2) << change << one.err;
    EXPECT_EQ(one.err, "") << change;  // rank 0 reports
    EXPECT_NE(zero.err.find(message), std::string::npos) << zero.err;
    EXPECT_FALSE(scratch_.has("run/run.json")) << change;
  }
  // The same data at another path is accepted.
  scratch_.write("copy.txt", scratch_.read("text.txt"));
  const int port = free_port();
  const auto first = start_rank(scratch_, 0, port, {});
  const auto second = start_rank(scratch_, 1, port, {"--training.dataset_path=copy.txt"});
  EXPECT_EQ(first->wait().exit_code, 0);
  EXPECT_EQ(second->wait().exit_code, 0);
}

// A second job on the port of a first one can neither join it nor end it.
TEST_F(LaunchTrain, a_second_job_on_the_same_port_is_harmless) {
  const int port = free_port();
  const Words many = {"--training.steps=100000000", "--metrics.log_freq=1000000"};
  const auto first = start_rank(scratch_, 0, port, many);
  const auto second = start_rank(scratch_, 1, port, many);
  ASSERT_TRUE(first->wait_for([&] { return first->err().find("step: ") != std::string::npos; }))
      << first->err();
  const Words other = {"--job.dump_folder=other", "--comm.deadline_s=2"};
  const auto zero = start_rank(scratch_, 0, port, other);
  const auto one = start_rank(scratch_, 1, port, other);
  const Outcome listening = zero->wait(), joining = one->wait();
  EXPECT_EQ(listening.exit_code, 1);
  EXPECT_NE(listening.err.find("cannot listen"), std::string::npos) << listening.err;
  EXPECT_EQ(joining.exit_code, 1);
  EXPECT_NE(joining.err.find("belongs to another job"), std::string::npos) << joining.err;
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait().exit_code, 75);
  EXPECT_EQ(second->wait().exit_code, 75);
}

TEST_F(LaunchTrain, waiting_for_other_ranks_ends_at_the_first_signal) {
  for (const int rank : {0, 1}) {
    const auto alone = start_rank(scratch_, rank, free_port(), {});
    // Signal handlers are installed first; the rest is waiting.
    ASSERT_TRUE(wait_until([&] { return handles(alone->process(), SIGTERM); }));
    alone->signal(SIGTERM);
    const Outcome outcome = alone->wait();
    EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
    EXPECT_NE(outcome.err.find("stopped while waiting for "), std::string::npos) << outcome.err;
  }
  Running launcher(scratch_.path(),
                   trireme_command(joined({"launch", "-n", "1", "--nnodes", "2", "--node-rank", "1",
                                           "--rdzv", fmt::format("127.0.0.1:{}", free_port())},
                                          eight_samples)));
  ASSERT_TRUE(wait_until([&] { return handles(launcher.process(), SIGTERM); }));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait().exit_code, 75);
}

// Returns whether a process with a rank of this folder runs.
bool has_ranks(const Scratch& scratch, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (train_process_of(scratch, rank) > 0) return true;
  }
  return false;
}

// At any moment of the start: before the ranks have read who their launcher is, while they wait for
// its store, for each other, and for their connections.
TEST_F(LaunchTrain, ranks_end_with_a_launcher_that_is_killed_while_it_starts) {
  constexpr int ranks = 4;
  std::mt19937 random(std::random_device{}());
  const int rounds = std::getenv("TRIREME_FULL") == nullptr ? 4 : 25;
  for (int round = 0; round < rounds; ++round) {
    Running launcher(scratch_.path(),
                     trireme_command(joined({"launch", "-n", std::to_string(ranks)},
                                            joined(eight_samples, {"--overwrite"}))));
    ASSERT_TRUE(wait_until([&] { return has_ranks(scratch_, ranks) || launcher.has_ended(); }));
    const auto pause = std::chrono::milliseconds(random() % 250);
    std::this_thread::sleep_for(pause);
    launcher.signal(SIGKILL);
    EXPECT_TRUE(wait_until([&] { return !has_ranks(scratch_, ranks); }))
        << "round " << round << ": killed after " << pause.count() << " ms";
    launcher.wait();
  }
}

// ---- silence

// A rank that is stopped is named soon after elastic.detect_s; a launcher that was itself stopped
// for longer blames no rank.
TEST_F(LaunchTrain, a_stopped_rank_is_named_and_a_stopped_launcher_names_none) {
  const Words words =
      joined(eight_samples, {"--training.steps=100000000", "--metrics.log_freq=1000000",
                             "--elastic.detect_s=1", "--parallelism.data_parallel_shard_degree=2"});
  Running launcher(scratch_.path(),
                   trireme_command(joined({"launch", "-n", "2", "--no-elastic"}, words)));
  ASSERT_TRUE(launcher.wait_for([&] {
    return scratch_.has("run/metrics.jsonl") && !scratch_.read("run/metrics.jsonl").empty();
  })) << launcher.err();
  launcher.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  launcher.signal(SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  ASSERT_FALSE(launcher.has_ended()) << launcher.err();
  const pid_t process = train_process_of(scratch_, 1);
  ASSERT_GT(process, 0);
  const auto stopped = std::chrono::steady_clock::now();
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  ASSERT_TRUE(launcher.wait_for([&] {
    return launcher.err().find("error: rank 1 (") != std::string::npos;
  })) << launcher.err();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - stopped;
  fmt::print("named {:.2f} s after it was stopped\n", seconds.count());
  EXPECT_GT(seconds.count(), 0.45);  // three quarters of a second after the last heartbeat
  EXPECT_LT(seconds.count(), 10);
  const Outcome outcome = launcher.wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("has sent no heartbeat for "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("it is stopped by SIGSTOP"), std::string::npos) << outcome.err;
}

// ---- several nodes

class LaunchNodes : public LaunchTrain {
 protected:
  std::unique_ptr<Running> start_node(int node, const Words& more) {
    const Words nodes = {"launch",
                         "-n",
                         "1",
                         "--nnodes",
                         "2",
                         "--node-rank",
                         std::to_string(node),
                         "--rdzv",
                         fmt::format("127.0.0.1:{}", port_),
                         "--restarts",
                         "2"};
    return std::make_unique<Running>(scratch_.path(),
                                     trireme_command(joined(joined(nodes, eight_samples), more)));
  }

  const int port_ = comm::StoreServer({.host = "127.0.0.1"}).port();
};

// A bad call is not started again by any node, whether a rank or a launcher finds it.
TEST_F(LaunchNodes, a_bad_call_of_one_node_ends_both_with_its_cause) {
  const std::vector<std::pair<Words, std::string>> all = {
      {{"--optimizer.lr=0.5"}, "optimizer.lr: 0.01 there, 0.5 here"},
      {{"--training.steps=x"}, "training.steps"}};
  for (const auto& [wrong, cause] : all) {
    for (const int bad : {1, 0}) {
      if (bad == 0 && cause.find(" there, ") != std::string::npos) continue;
      const auto zero = start_node(0, bad == 0 ? wrong : Words{});
      const auto one = start_node(1, bad == 1 ? wrong : Words{});
      for (Running* node : {zero.get(), one.get()}) {
        const Outcome outcome = node->wait();
        EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
        EXPECT_NE(outcome.err.find(cause), std::string::npos) << outcome.err;
        EXPECT_EQ(outcome.err.find("restart 1"), std::string::npos) << outcome.err;
      }
    }
  }
}

TEST_F(LaunchNodes, a_killed_rank_of_one_node_restarts_both) {
  const Words words =
      joined(saved_often, {"--training.steps=60", "--checkpoint.interval=20", "--no-elastic"});
  const auto zero = start_node(0, words), one = start_node(1, words);
  ASSERT_TRUE(zero->wait_for([&] { return has_checkpoint(scratch_); })) << zero->err();
  const pid_t process = train_process_of(scratch_, 1);
  ASSERT_GT(process, 0);
  ASSERT_EQ(::kill(process, SIGKILL), 0);
  for (Running* node : {zero.get(), one.get()}) {
    const Outcome outcome = node->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("restart 1 of 2: from"), std::string::npos) << outcome.err;
  }
}

// ---- the token of a job whose launcher hands none on

TEST_F(LaunchTrain, ranks_started_by_hand_have_a_random_token_in_the_runs_folder) {
  const int port = free_port();
  const comm::StoreAddress address{.host = "127.0.0.1", .port = port};
  std::filesystem::create_directory(scratch_.at("run"));
  scratch_.write("run/store.token", "of an earlier attempt\n");
  auto zero = start_rank(scratch_, 0, port, {});
  const auto token = [&] { return comm::read_job_token(scratch_.at("run"), ""); };
  ASSERT_TRUE(wait_until([&] { return token().has_value(); }));
  struct stat status {};
  ASSERT_EQ(::stat(scratch_.at("run/store.token").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  // The token of the empty text, with which every stranger could begin.
  EXPECT_TRUE(wait_until([&] {
    try {
      (void)comm::open_store(address, {.retries = false, .token = ""});
    } catch (const comm::StoreUnreachable& error) {
      return error.is_refused();
    }
    ADD_FAILURE() << "the store accepts the empty token";
    return true;
  }));
  EXPECT_NO_THROW((void)comm::open_store(address, {.deadline_s = 60, .token = *token()}));
  auto one = start_rank(scratch_, 1, port, {});
  const Outcome first = zero->wait(), second = one->wait();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_FALSE(scratch_.has("run/store.token"));
}

TEST_F(LaunchTrain, torchruns_environment_is_enough) {
  const Words run_words = joined({"train"}, eight_samples);
  ASSERT_EQ(run(joined(run_words, {"--parallelism.data_parallel_shard_degree=2"})).exit_code, 0);
  const std::string threads = scratch_.read(final_weights);
  int port = 0;
  { port = comm::StoreServer({.host = "127.0.0.1"}).port(); }  // a free port
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
  EXPECT_NE(first.err.find("using torchrun"), std::string::npos) << first.err;
  EXPECT_EQ(second.out, "");
  EXPECT_TRUE(scratch_.read(final_weights) == threads);
}

}  // namespace
}  // namespace trireme::tests
