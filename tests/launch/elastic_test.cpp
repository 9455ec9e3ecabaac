// SPDX-License-Identifier: Apache-2.0
// trireme launch replaces ranks that are lost, while the others go on in their processes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "comm/store/store_server.h"
#include "obs/files/event_log.h"
#include "tests/launch/elastic_rig.h"

namespace trireme::tests {
namespace {

constexpr const char* machine_of_four = R"(format = 2
name = "four"
source = "invented"
[processor]
name = "core"
memory_gigabytes = 4
fp32_tflops = 0.05
bf16_tflops = 0.05
gigabytes_per_second = 15
units = 1
gemm_reach = 1
gemm_ramp = 0.001
attention_forward = 0.8
attention_backward = 0.9
attention_ramp = 20
attention_head = 0.25
memory_reach = 1
launch_microseconds = 20
[domain]
size = 4
link_gigabytes_per_second = 10
latency_microseconds = 10
reach = 1
)";

class Elastic : public ElasticTest {
 protected:
  // The parts of every recovery fill the time from the loss to the line of the first new step, but
  // for what digits of files round.
  void expect_recoveries_add_up(size_t recoveries) const {
    std::map<int64_t, double> times;  // of the first line of a step
    int64_t newest_before = 0;
    std::istringstream lines(scratch_.read("run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const base::Json metrics = base::Json::parse(line);
      if (!metrics.contains("loss_metrics/global_avg_loss")) continue;
      times.emplace(metrics.at("step").get<int64_t>(), metrics.at("time").get<double>());
    }
    size_t found = 0;
    for (const obs::Event& event : obs::read_events(scratch_.at("run"))) {
      if (event.kind != obs::EventKind::recovered) continue;
      ++found;
      EXPECT_EQ(event.data.at("epoch"), found);
      double sum = 0;
      for (const char* part : {"detect", "abort", "reform", "restore", "repeat"}) {
        EXPECT_GE(event.data.at(part).get<double>(), 0) << part;
        sum += event.data.at(part).get<double>();
      }
      const double lost_at = event.data.at("lost_at").get<double>();
      EXPECT_NEAR(sum, event.data.at("seconds").get<double>(), rounding_seconds);
      EXPECT_NEAR(lost_at + sum, times.at(event.step), rounding_seconds) << event.step;
      EXPECT_GT(event.step, newest_before);
      EXPECT_LT(times.at(event.step - 1), times.at(event.step));
      newest_before = event.step;
    }
    EXPECT_EQ(found, recoveries);
  }
  static constexpr double rounding_seconds = 1e-4;

  // Returns the size of the address space of a process.
  static rlim_t mapped_bytes(pid_t process) {
    std::ifstream status(fmt::format("/proc/{}/statm", process));
    rlim_t pages = 0;
    status >> pages;
    return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  }
};

TEST_F(Elastic, killed_ranks_are_replaced_and_the_bits_stay) {
  constexpr int steps = 60;
  const std::string expected = quiet_weights(steps);
  const auto running = launch(steps, {"--json"});
  disturb(*running, SIGKILL, 2, 15, 0);
  disturb(*running, SIGKILL, 0, 30, 1);
  const Outcome outcome = running->wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
  expect_recoveries_add_up(2);
  EXPECT_NE(outcome.err.find("error: rank 2 (process "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("epoch 1: rank 2 of this node replaced"), std::string::npos);
  EXPECT_NE(outcome.err.find("epoch 2: rank 0 of this node replaced"), std::string::npos);
  EXPECT_NE(outcome.err.find(" from its own live state; 0 steps are repeated"), std::string::npos);
  const base::Json result = base::Json::parse(outcome.out);
  EXPECT_TRUE(result.at("ok").get<bool>());
  EXPECT_EQ(result.at("recoveries"), 2);
  // Verdicts of epochs that are over do not end a run.
  const std::string list = trireme(scratch_, {"diagnose", "run"}).out;
  EXPECT_NE(list.find("after 2 failures"), std::string::npos) << list;
}

TEST_F(Elastic, a_spare_takes_the_place_of_a_rank_that_is_stopped) {
  constexpr int steps = 60;
  const std::string expected = quiet_weights(steps);
  const auto running = launch(steps, {"--spares=1", "--elastic.detect_s=1"});
  pid_t spare = 0;
  ASSERT_TRUE(running->wait_for([&] {
    if (!has_step(10)) return false;
    const base::Json all = base::Json::parse(scratch_.read("run/processes.json"));
    if (!all.at("spares").empty()) spare = all.at("spares")[0].get<pid_t>();
    return spare > 0;
  })) << running->err();
  disturb(*running, SIGSTOP, 3, 20, 0);
  ASSERT_TRUE(running->wait_for([&] { return process_of(3, 1) > 0; })) << running->err();
  EXPECT_EQ(process_of(3, 1), spare);
  const Outcome outcome = running->wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("error: rank 3 (process "), std::string::npos) << outcome.err;
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
}

TEST_F(Elastic, shards_go_back_to_the_newest_checkpoint) {
  constexpr int steps = 60;
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=2",
             "--checkpoint.interval=10"};
  const std::string expected = quiet_weights(steps);
  const auto running = launch(steps, {});
  disturb(*running, SIGKILL, 1, 25, 0);
  const Outcome outcome = running->wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
  expect_each_step_once(steps);
}

TEST_F(Elastic, epochs_without_progress_end_the_run) {
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--checkpoint.interval=0"};
  const auto running = launch(100000, {"--json"});
  disturb(*running, SIGKILL, 1, 30, 0);
  // From the first step again: none of these epochs comes as far.
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    ASSERT_TRUE(running->wait_for([&] { return process_of(1, epoch) > 0; })) << running->err();
    ASSERT_EQ(::kill(process_of(1, epoch), SIGKILL), 0);
  }
  const Outcome outcome = running->wait();
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  const base::Json result = base::Json::parse(outcome.out);
  EXPECT_NE(result.at("reason").get<std::string>().find("3 epochs in a row came to no step after"),
            std::string::npos)
      << outcome.out;
}

// What the alarm about 8-bit numbers knows goes on, although the rank that reports it is new.
TEST_F(Elastic, a_block_that_fell_back_stays_in_bf16) {
  if (std::getenv("TRIREME_FULL") == nullptr) GTEST_SKIP() << "only with TRIREME_FULL";
  constexpr int steps = 130;
  scratch_.write("tiny.toml", replaced(tiny_model, "layers = 2", "layers = 6"));
  layout_ = {"--parallelism.data_parallel_replicate_degree=4",
             "--training.dtype=fp8-tensor",
             "--precision.bf16_first=1",
             "--precision.bf16_last=1",
             "--precision.fallback=bf16",
             "--optimizer.lr=1e-3",
             "--training.max_norm=1e9",
             "--training.skip_norm_multiple=0",
             "--training.seq_len=32"};
  ::setenv("TRIREME_PLANT_DRIFT", "block=3,channel=5,onset=60,end=85,rate=2", 1);
  const std::string expected = quiet_weights(steps);
  const auto running = launch(steps, {});
  disturb(*running, SIGKILL, 0, 90, 0);
  disturb(*running, SIGKILL, 1, 105, 1);
  const Outcome outcome = running->wait();
  ::unsetenv("TRIREME_PLANT_DRIFT");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("blocks.3 is in bf16 from step"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("epoch 2: rank 1 of this node replaced"), std::string::npos);
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
}

// The second phase needs more memory than the ranks may map.
TEST_F(Elastic, ranks_without_memory_go_on_with_another_layout_once) {
  constexpr int steps = 22, lacking_steps = 12;
  scratch_.write("tiny.toml",
                 "family = \"llama\"\nlayers = 4\nhidden = 64\nheads = 2\nffn = 256\nvocab = 256\n"
                 "max_seq = 2048\n");
  scratch_.write("four.toml", machine_of_four);
  scratch_.write("text.txt", tiny_text(3000));
  scratch_.write("tiny_run.toml",
                 std::string(tiny_config) + "\n[[phase]]\nfrom_step = 21\nseq_len = 2048\n");
  layout_ = {"--parallelism.data_parallel_replicate_degree=4", "--checkpoint.interval=10",
             "--system.machine=four.toml"};
  const std::string expected = quiet_weights(steps);
  // What malloc keeps for later would be used first.
  ::setenv("MALLOC_ARENA_MAX", "1", 1);
  ::setenv("MALLOC_MMAP_THRESHOLD_", "65536", 1);
  const auto running = launch(steps, {"--json"});
  ::unsetenv("MALLOC_ARENA_MAX");
  ::unsetenv("MALLOC_MMAP_THRESHOLD_");
  ASSERT_TRUE(running->wait_for([&] { return has_step(lacking_steps); })) << running->err();
  const pid_t rank = process_of(2, 0);
  const rlim_t bytes = mapped_bytes(rank) + (rlim_t{24} << 20);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  ASSERT_EQ(::prlimit(rank, RLIMIT_AS, &limit, nullptr), 0);
  const Outcome outcome = running->wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("the job goes on with another layout, once"), std::string::npos)
      << outcome.err;
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected) << outcome.err;
  const base::Json result = base::Json::parse(outcome.out);
  EXPECT_TRUE(result.at("ok").get<bool>()) << outcome.out;
  size_t verdicts = 0;
  for (const obs::Event& event : obs::read_events(scratch_.at("run"))) {
    if (event.kind != obs::EventKind::verdict) continue;
    ++verdicts;
    EXPECT_EQ(event.data.at("verdict"), "no_memory") << event.text;
  }
  EXPECT_EQ(verdicts, 1U);
}

// Another attempt would end in the same way.
TEST_F(Elastic, a_run_that_the_step_guard_ends_is_not_continued) {
  layout_ = {"--parallelism.data_parallel_replicate_degree=4", "--optimizer.lr=1000",
             "--training.clip=none", "--lr_scheduler.warmup_steps=0",
             "--lr_scheduler.decay_type=constant"};
  const Outcome outcome = launch(200, {})->wait();
  EXPECT_EQ(outcome.exit_code, 93) << outcome.err;
  EXPECT_NE(outcome.err.find("steps in a row were skipped"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("epoch 1: "), std::string::npos) << outcome.err;
}

TEST_F(Elastic, a_request_to_stop_after_a_recovery_saves) {
  const auto running = launch(100000, {});
  disturb(*running, SIGKILL, 1, 10, 0);
  ASSERT_TRUE(running->wait_for([&] {
    return running->err().find("continues after step") != std::string::npos && has_step(20);
  })) << running->err();
  running->signal(SIGTERM);
  const Outcome outcome = running->wait();
  EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
  EXPECT_NE(outcome.err.find("is saved; --resume auto continues"), std::string::npos)
      << outcome.err;
}

TEST_F(Elastic, a_lost_rank_of_another_node_is_replaced_there) {
  constexpr int steps = 60;
  const std::string expected = quiet_weights(steps);
  const int port = comm::StoreServer({.host = "127.0.0.1"}).port();
  std::vector<std::unique_ptr<Running>> nodes;
  for (int node = 0; node < 2; ++node) {
    nodes.push_back(std::make_unique<Running>(
        scratch_.path(), trireme_command(together(
                             {"launch", "-n", "2", "--nnodes", "2", "--node-rank",
                              std::to_string(node), "--rdzv", fmt::format("127.0.0.1:{}", port)},
                             settings(steps, "run")))));
  }
  ASSERT_TRUE(nodes[0]->wait_for([&] {
    return has_step(20) && process_of(3, 0, "processes-1.json") > 0;
  })) << nodes[0]->err();
  ASSERT_EQ(::kill(process_of(3, 0, "processes-1.json"), SIGKILL), 0);
  for (const auto& node : nodes) {
    const Outcome outcome = node->wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  EXPECT_NE(nodes[1]->err().find("epoch 1: rank 3 of this node replaced"), std::string::npos)
      << nodes[1]->err();
  EXPECT_NE(nodes[0]->err().find("epoch 1: no rank of this node was lost"), std::string::npos)
      << nodes[0]->err();
  EXPECT_TRUE(scratch_.read("run/" + weights_file) == expected);
}

TEST_F(Elastic, spares_that_would_wait_for_nothing_are_refused) {
  layout_.clear();
  for (const Words& words : {Words{"-n", "1"}, Words{"-n", "4", "--no-elastic"},
                             Words{"-n", "4", "--checkpoint.enable=false"}}) {
    const Outcome outcome = trireme(
        scratch_, together({"launch", "--spares", "1"}, together(words, settings(4, "run"))));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("--spares "), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace trireme::tests
