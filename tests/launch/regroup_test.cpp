// SPDX-License-Identifier: Apache-2.0
// A rank is killed, and the others form the next epoch of the run with a new process, in the same
// processes: from the memory of a replica, or from the newest checkpoint.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "comm/failure/verdict.h"
#include "comm/gloo.h"
#include "comm/store/store.h"
#include "comm/store/store_server.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

constexpr int regroup_ranks = 4, regroup_steps = 40;
constexpr int64_t step_tokens = 4 * 16;

class Regroup : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
    write_tiny(scratch_);
  }

  Words settings(const std::string& folder) const {
    Words words = {fmt::format("--training.steps={}", regroup_steps),
                   "--training.local_batch_size=1", "--training.global_batch_size=4",
                   "--job.dump_folder=" + folder, "--system.device=cpu"};
    words.insert(words.end(), layout_.begin(), layout_.end());
    return words;
  }
  std::string quiet_weights() {
    Words words = {"train", "tiny_run.toml"};
    for (const std::string& word : settings("quiet")) words.push_back(word);
    const Outcome outcome = trireme(scratch_, words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return scratch_.read("quiet/weights/final/model.safetensors");
  }

  std::unique_ptr<Running> start(int rank, int64_t epoch) {
    Words words = {TRIREME_RANK_PROGRAM,
                   "epochs",
                   fmt::format("--rank={}", rank),
                   fmt::format("--world={}", regroup_ranks),
                   fmt::format("--epoch={}", epoch),
                   fmt::format("--store=127.0.0.1:{}", server_.port())};
    for (const std::string& word : settings("run")) words.push_back(word);
    return std::make_unique<Running>(scratch_.path(), words);
  }
  std::unique_ptr<comm::Store> store() const {
    return comm::open_store(
        {.is_folder = false, .host = "127.0.0.1", .folder = "", .port = server_.port()},
        {.deadline_s = 60, .token = "epochs"});
  }
  // Does the file of metrics have the line of a step?
  bool has_step(int step) const {
    return scratch_.has("run/metrics.jsonl") &&
           scratch_.read("run/metrics.jsonl").find(fmt::format("\"step\":{},", step)) !=
               std::string::npos;
  }
  // Kills a rank after the step, and forms the next epoch with a new process in its place.
  // Returns what every process has printed; the processes of the first epoch are the same.
  std::vector<Outcome> run_with_a_kill(int step, int killed) {
    std::vector<std::unique_ptr<Running>> processes;
    for (int rank = 0; rank < regroup_ranks; ++rank) processes.push_back(start(rank, 0));
    EXPECT_TRUE(processes[0]->wait_for([&] { return has_step(step); })) << processes[0]->err();
    processes[static_cast<size_t>(killed)]->signal(SIGKILL);
    const auto first_epoch = store();
    first_epoch->enter(0);
    (void)comm::settle_verdict(
        *first_epoch, {.kind = comm::VerdictKind::died, .ranks = {killed}, .text = "killed"});
    const auto all = store();
    EXPECT_TRUE(wait_until(
        [&] { return all->try_get("left/0").value_or("") == std::to_string(regroup_ranks - 1); }));
    processes[static_cast<size_t>(killed)].reset();  // a zombie still holds the run's folder
    processes[static_cast<size_t>(killed)] = start(killed, 1);
    all->set("formed/1", "1");
    std::vector<Outcome> outcomes;
    for (const auto& process : processes) outcomes.push_back(process->wait());
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcomes;
  }
  // The losses of every step, those of repeated ones as well.
  std::map<int64_t, std::set<double>> losses() const {
    std::map<int64_t, std::set<double>> losses;
    std::istringstream lines(scratch_.read("run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const base::Json metrics = base::Json::parse(line);
      if (!metrics.contains("loss_metrics/global_avg_loss")) continue;
      losses[metrics.at("step").get<int64_t>()].insert(
          metrics.at("loss_metrics/global_avg_loss").get<double>());
    }
    return losses;
  }
  void expect_each_step_once(const Outcome& first) const {
    EXPECT_NE(
        first.out.find(fmt::format("steps {} attempt {} tokens {} from 0 epoch 1", regroup_steps,
                                   regroup_steps, regroup_steps * step_tokens)),
        std::string::npos)
        << first.out;
    const auto found = losses();
    EXPECT_EQ(found.size(), static_cast<size_t>(regroup_steps));
    for (const auto& [step, values] : found) EXPECT_EQ(values.size(), 1U) << "step " << step;
    const base::Json ledger = base::Json::parse(scratch_.read("run/ledger.json"));
    int64_t tokens = 0;
    for (const char* kind : {"trained", "masked", "padding"}) {
      tokens += ledger.at("tokens").at(kind).get<int64_t>();
    }
    EXPECT_EQ(tokens, regroup_steps * step_tokens) << ledger.dump();
  }

  Scratch scratch_;
  comm::StoreServer server_{{.host = "127.0.0.1", .token = "epochs"}};
  Words layout_;
};

TEST_F(Regroup, replicas_continue_from_the_state_in_their_memory) {
  layout_ = {"--parallelism.data_parallel_replicate_degree=4", "--checkpoint.interval=0"};
  const std::string expected = quiet_weights();
  const std::vector<Outcome> outcomes = run_with_a_kill(6, 2);
  EXPECT_NE(outcomes[0].err.find(" from its own copy"), std::string::npos) << outcomes[0].err;
  EXPECT_NE(outcomes[0].err.find("; 0 steps are repeated"), std::string::npos) << outcomes[0].err;
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
  expect_each_step_once(outcomes[0]);
  // The copy in host memory is as large as predicted, on all ranks and on the new one.
  std::set<std::string> kept;
  std::istringstream lines(outcomes[0].out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("kept ")) kept.insert(line);
  }
  ASSERT_EQ(kept.size(), 1U) << outcomes[0].out;
  const Words words = words_of(*kept.begin());
  EXPECT_EQ(words.at(1), words.at(3));
  EXPECT_NE(words.at(1), "0");
}

TEST_F(Regroup, the_first_rank_is_replaced_as_well) {
  layout_ = {"--parallelism.data_parallel_replicate_degree=4", "--checkpoint.interval=0"};
  const std::string expected = quiet_weights();
  const std::vector<Outcome> outcomes = run_with_a_kill(6, 0);
  EXPECT_NE(outcomes[0].err.find(" from the memory of other ranks"), std::string::npos)
      << outcomes[0].err;
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
}

TEST_F(Regroup, shards_without_a_copy_continue_from_the_newest_checkpoint) {
  layout_ = {"--parallelism.data_parallel_shard_degree=4", "--parallelism.zero_stage=1",
             "--checkpoint.interval=4"};
  const std::string expected = quiet_weights();
  const std::vector<Outcome> outcomes = run_with_a_kill(11, 2);
  EXPECT_NE(outcomes[0].err.find(" from the newest checkpoint"), std::string::npos)
      << outcomes[0].err;
  EXPECT_TRUE(scratch_.read(final_weights) == expected);
  expect_each_step_once(outcomes[0]);
}

}  // namespace
}  // namespace trireme::tests
