// SPDX-License-Identifier: Apache-2.0
// Ranks that another launcher started report an error of all of them once, and an error of a single
// rank, too: one line on stderr, or one object with --json.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>

#include "comm/gloo.h"
#include "comm/store/store_server.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

class OneReport : public testing::Test {
 protected:
  static constexpr int world = 3;

  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
    write_tiny(scratch_);
    port_ = comm::StoreServer({.host = "127.0.0.1"}).port();
  }

  // Starts one process as torchrun does.
  void start(int rank, const Words& more, const Words& variables = {}) {
    Words words = {"/usr/bin/env",
                   fmt::format("RANK={}", rank),
                   fmt::format("WORLD_SIZE={}", world),
                   fmt::format("LOCAL_RANK={}", rank),
                   fmt::format("LOCAL_WORLD_SIZE={}", world),
                   "MASTER_ADDR=127.0.0.1",
                   fmt::format("MASTER_PORT={}", port_)};
    words.insert(words.end(), variables.begin(), variables.end());
    const Words train = trireme_command({"train", "tiny_run.toml", "--training.local_batch_size=1",
                                         "--training.global_batch_size=3", "--json"});
    words.insert(words.end(), train.begin(), train.end());
    words.insert(words.end(), more.begin(), more.end());
    ranks_.push_back(std::make_unique<Running>(scratch_.path(), words));
  }
  void wait() {
    for (const auto& rank : ranks_) outcomes_.push_back(rank->wait());
    ranks_.clear();
  }
  // Returns the output of all ranks.
  std::string out() const { return joined(&Outcome::out); }
  std::string err() const { return joined(&Outcome::err); }
  int errors() const {
    int count = 0;
    const std::string text = err();
    for (size_t at = text.find("error: "); at != std::string::npos;
         at = text.find("error: ", at + 1)) {
      ++count;
    }
    return count;
  }

  Scratch scratch_;
  int port_ = 0;
  std::vector<std::unique_ptr<Running>> ranks_;
  std::vector<Outcome> outcomes_;

 private:
  std::string joined(std::string Outcome::*text) const {
    std::string all;
    for (const Outcome& outcome : outcomes_) all += outcome.*text;
    return all;
  }
};

TEST_F(OneReport, a_bad_configuration_is_reported_by_rank_0_only) {
  for (const std::string wrong :
       {"--optimizer.lr=x", "--nonsense", "--training.dataset_path=gone"}) {
    outcomes_.clear();
    for (int rank = 0; rank < world; ++rank) start(rank, {wrong});
    wait();
    for (const Outcome& outcome : outcomes_) EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_EQ(errors(), 1) << wrong << "\n" << err();
    EXPECT_EQ(only_object(out())["ok"], false) << wrong;
    EXPECT_EQ(outcomes_[1].out + outcomes_[2].out, "");
    EXPECT_FALSE(scratch_.has("run"));
  }
}

TEST_F(OneReport, an_error_of_one_rank_ends_all_at_once) {
  start(0, {});
  start(1, {});
  start(2, {"--training.steps=x"});
  wait();
  EXPECT_EQ(outcomes_[0].exit_code, 1);
  EXPECT_EQ(outcomes_[1].exit_code, 1);
  EXPECT_EQ(outcomes_[2].exit_code, 2);
  EXPECT_EQ(errors(), 1) << err();
  EXPECT_NE(outcomes_[0].err.find("error: rank 2 failed: "), std::string::npos) << err();
  EXPECT_NE(outcomes_[0].err.find("training.steps"), std::string::npos) << err();
  EXPECT_EQ(only_object(out())["ok"], false);
}

TEST_F(OneReport, a_different_error_is_not_lost) {
  start(0, {"--training.steps=x"});
  start(1, {"--optimizer.lr=y"});
  start(2, {"--training.steps=x"});
  wait();
  EXPECT_EQ(errors(), 2) << err();
  EXPECT_NE(outcomes_[1].err.find("error: rank 1: "), std::string::npos) << err();
  EXPECT_NE(outcomes_[1].err.find("optimizer.lr"), std::string::npos) << err();
  EXPECT_EQ(outcomes_[2].err, "");
  EXPECT_TRUE(only_object(out())["error"].get<std::string>().find("training.steps") !=
              std::string::npos);
}

TEST_F(OneReport, a_rank_that_is_killed_is_named_once_and_to_torchrun) {
  const std::string logs = scratch_.at("logs").string();
  for (int rank = 0; rank < world; ++rank) {
    std::filesystem::create_directories(fmt::format("{}/{}", logs, rank));
    start(rank, {"--training.steps=100000000", "--metrics.log_freq=1000000"},
          {fmt::format("TORCHELASTIC_ERROR_FILE={}/{}/error.json", logs, rank)});
  }
  Running& zero = *ranks_[0];
  ASSERT_TRUE(zero.wait_for([&] { return zero.err().find("step: ") != std::string::npos; }))
      << zero.err();
  ranks_[1]->signal(SIGKILL);
  wait();
  EXPECT_EQ(errors(), 1) << err();
  EXPECT_NE(outcomes_[0].err.find("error: rank 1 (process "), std::string::npos) << err();
  EXPECT_EQ(only_object(out())["ok"], false);
  const auto failure = [&](int rank) {
    return base::Json::parse(scratch_.read(fmt::format("logs/{}/error.json", rank)))["message"];
  };
  const auto seconds = [&](int rank) {
    return std::stoll(failure(rank)["extraInfo"]["timestamp"].get<std::string>());
  };
  EXPECT_EQ(failure(1)["message"], failure(0)["message"]);
  EXPECT_LT(seconds(1), seconds(0));
  EXPECT_LT(seconds(1), seconds(2));
}

// Under torchrun the store uses the port after MASTER_PORT; another job may occupy it.
TEST_F(OneReport, a_port_of_another_job_is_skipped) {
  // Below the ephemeral ports, as users choose it.
  std::unique_ptr<comm::StoreServer> other;
  for (int port = 16000; other == nullptr && port < 30000; port += 10) {
    try {
      other = std::make_unique<comm::StoreServer>(
          comm::StoreServer::Options{.host = "127.0.0.1", .port = port, .token = "another job"});
    } catch (const std::exception&) {
      continue;  // the port is taken
    }
  }
  ASSERT_NE(other, nullptr);
  port_ = other->port() - 1;
  for (int rank = 0; rank < world; ++rank) {
    start(rank, {}, {"TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RUN_ID=none"});
  }
  wait();
  for (const Outcome& outcome : outcomes_) EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(only_object(out())["ok"], true);
}

}  // namespace
}  // namespace trireme::tests
