// SPDX-License-Identifier: Apache-2.0
// Ranks that another launcher started: rank 0 runs the store, or it is a folder, and only the ranks
// themselves can find out what happened.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "comm/gloo.h"
#include "comm/store/store_server.h"
#include "tests/cli/program.h"

namespace trireme::tests {
namespace {

using Words = std::vector<std::string>;

class ForeignLauncher : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!comm::gloo_status().empty()) GTEST_SKIP() << comm::gloo_status();
    int port = 0;
    { port = comm::StoreServer({.host = "127.0.0.1"}).port(); }  // a free port
    for (int rank = 0; rank < 3; ++rank) {
      Words words = {"/usr/bin/env",
                     fmt::format("RANK={}", rank),
                     "WORLD_SIZE=3",
                     fmt::format("LOCAL_RANK={}", rank),
                     "LOCAL_WORLD_SIZE=3",
                     "MASTER_ADDR=127.0.0.1",
                     fmt::format("MASTER_PORT={}", port),
                     "TRIREME_FLIGHT=flight",
                     "TRIREME_DEADLINE=20"};
      if (uses_folder()) words.emplace_back("TRIREME_STORE=./store");
      words.insert(words.end(), {TRIREME_RANK_PROGRAM, "loop"});
      ranks_.push_back(std::make_unique<Running>(scratch_.path(), words));
    }
    ASSERT_TRUE(ranks_[0]->wait_for([&] {
      return scratch_.has("rank0.pid") && scratch_.has("rank1.pid") && scratch_.has("rank2.pid");
    })) << ranks_[0]->err();
  }
  bool uses_folder() const { return GetParam(); }

  Scratch scratch_;
  std::vector<std::unique_ptr<Running>> ranks_;
};

TEST_P(ForeignLauncher, ranks_agree_on_the_rank_that_died) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ranks_[1]->signal(SIGKILL);
  ranks_[1]->wait();
  for (const int rank : {0, 2}) {
    const Outcome outcome = ranks_[static_cast<size_t>(rank)]->wait();
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.err.find("error: rank 1 "), std::string::npos) << outcome.err;
    EXPECT_TRUE(scratch_.has(fmt::format("flight/rank_{}.json", rank)));
  }
}

TEST_P(ForeignLauncher, the_death_of_rank_zero_is_reported_too) {
  ranks_[0]->signal(SIGKILL);
  ranks_[0]->wait();
  for (const size_t rank : {size_t{1}, size_t{2}}) {
    const Outcome outcome = ranks_[rank]->wait();
    EXPECT_EQ(outcome.exit_code, 1);
    const std::string expected = uses_folder() ? "error: rank 0 " : "rank 0 runs it";
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
  }
}

INSTANTIATE_TEST_SUITE_P(stores, ForeignLauncher, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "folder" : "tcp"; });

}  // namespace
}  // namespace trireme::tests
