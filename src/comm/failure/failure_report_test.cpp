// SPDX-License-Identifier: Apache-2.0
// How often a failure is reported if all ranks or one rank have it, before or after joining.
#include "comm/failure/failure_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/store/store_server.h"
#include "comm/world/process_world.h"

namespace trireme::comm {
namespace {

// What the ranks of one run printed, in the order of their ranks.
class Spoken {
 public:
  FailureReporter reporter(int rank) {
    return {.print = [this, rank] { add(fmt::format("{}: report", rank)); },
            .print_line = [this, rank] { add(fmt::format("{}: line", rank)); }};
  }
  std::vector<std::string> all() {
    const std::scoped_lock lock(mutex_);
    std::sort(texts_.begin(), texts_.end());
    return texts_;
  }

 private:
  void add(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    texts_.push_back(text);
  }
  std::mutex mutex_;  // guards texts_
  std::vector<std::string> texts_;
};

using Texts = std::vector<std::string>;
constexpr int world_size = 3;

RankInfo info_of(int rank, int port) {
  RankInfo info{.rank = rank, .world = world_size, .local_rank = rank, .local_world = world_size};
  info.store = fmt::format("127.0.0.1:{}", port);
  info.token = "job";
  info.hosts_store = rank == 0;
  return info;
}

int unused_port() { return StoreServer({.host = "127.0.0.1"}).port(); }

// Every rank fails with its text before it joins; one with an empty text joins and waits for the
// others.
Texts early(const std::vector<std::string>& texts, const ReportTimeouts& timeouts) {
  Spoken spoken;
  const int port = unused_port();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < static_cast<int>(texts.size()); ++rank) {
    ranks.emplace_back([&, rank] {
      const std::string& text = texts[static_cast<size_t>(rank)];
      const RankInfo info = info_of(rank, port);
      if (!text.empty()) {
        report_before_joining(info, text, spoken.reporter(rank), timeouts);
        return;
      }
      ProcessWorld world(info, {.deadline_s = 30, .heartbeat_s = 0.02});
      world.keep_flight(false);
      const std::string never = "never";
      try {
        world.wait_for({&never, 1}, 30);
      } catch (const base::CommAborted& error) {
        EXPECT_TRUE(std::string(error.what()).ends_with("failed: no such file")) << error.what();
        report_once(world.store(), world.info(), error.what(), spoken.reporter(rank), timeouts);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return spoken.all();
}

TEST(FailureReport, a_failure_of_all_ranks_is_reported_by_rank_0) {
  EXPECT_EQ(early({"no such file", "no such file", "no such file"}, {}), Texts{"0: report"});
}

TEST(FailureReport, a_failure_of_one_rank_ends_all_and_is_reported_once) {
  EXPECT_EQ(early({"", "", "no such file"}, {}), Texts{"0: report"});
  EXPECT_EQ(early({"no such file", "", ""}, {}), Texts{"0: report"});
}

TEST(FailureReport, a_different_failure_is_added) {
  EXPECT_EQ(early({"no such file", "another", "no such file"}, {}),
            (Texts{"0: report", "1: line"}));
}

TEST(FailureReport, a_rank_that_cannot_reach_rank_0_prints) {
  Spoken spoken;
  report_before_joining(info_of(1, unused_port()), "no such file", spoken.reporter(1),
                        {.joining_s = 0.1});
  EXPECT_EQ(spoken.all(), Texts{"1: line"});
}

TEST(FailureReport, rank_0_prints_without_the_others) {
  Spoken spoken;
  const StoreServer taken({.token = "another job"});
  report_before_joining(info_of(0, taken.port()), "no such file", spoken.reporter(0),
                        {.joining_s = 0.1});
  report_before_joining(info_of(0, unused_port()), "no such file", spoken.reporter(0),
                        {.joining_s = 0.1});
  EXPECT_EQ(spoken.all(), (Texts{"0: report", "0: report"}));
}

TEST(FailureReport, without_rank_0_another_rank_reports) {
  const StoreServer server({.host = "127.0.0.1", .grace_s = 0});
  const std::string address = fmt::format("127.0.0.1:{}", server.port());
  Spoken spoken;
  std::vector<std::thread> ranks;
  for (const int rank : {1, 2}) {
    ranks.emplace_back([&, rank] {
      const auto store = open_store(parse_store_address(address), 10);
      report_once(*store, info_of(rank, server.port()), "lost", spoken.reporter(rank),
                  {.rank_zero_s = 0.05});
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(spoken.all().size(), 1U);
  // Rank 0 is late: the failure has been reported.
  const auto store = open_store(parse_store_address(address), 10);
  RankInfo zero = info_of(0, server.port());
  zero.hosts_store = false;
  report_once(*store, zero, "lost", spoken.reporter(0));
  EXPECT_EQ(spoken.all().size(), 1U);
}

}  // namespace
}  // namespace trireme::comm
