// SPDX-License-Identifier: Apache-2.0
// A store with many ranks: they join, wait for each other, report, and one of them ends. The time
// of each part is printed; TRIREME_FULL=1 runs thousands of ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <vector>

#include "comm/clock.h"
#include "comm/failure/verdict.h"
#include "comm/store/store_server.h"
#include "comm/store/store_tcp.h"
#include "tests/stops/stops_rig.h"

namespace trireme::tests {
namespace {

using comm::RankReport, comm::Store, comm::TcpStore;

// Returns as many ranks as descriptors allow, at most `wanted`: both ends of three connections per
// rank are in this process.
int ranks_that_fit(int wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(static_cast<rlim_t>(wanted), limit.rlim_cur / 6 - 32));
}

TEST(StoreScale, many_ranks_join_report_and_find_the_one_that_ended) {
  const int ranks = ranks_that_fit(is_full() ? 4096 : 128);
  ASSERT_GE(ranks, 64);
  const comm::StoreServer server({.host = "127.0.0.1", .token = "job"});
  const comm::StoreAddress address{.host = "127.0.0.1", .port = server.port()};
  const auto begin = comm::Clock::now();
  std::vector<std::unique_ptr<Store>> beats, others;
  std::vector<std::unique_ptr<comm::Membership>> members;
  for (int rank = 0; rank < ranks; ++rank) {
    beats.push_back(std::make_unique<TcpStore>(address, comm::StoreOptions{.token = "job"}));
    members.push_back(comm::membership_of(*beats.back()));
    members.back()->join(std::to_string(rank));
    others.push_back(beats.back()->another());
    others.push_back(beats.back()->another());
  }
  const double joined = comm::seconds_since(begin);
  comm::FlightRecorder recorder(0);
  comm::RankPosition position = comm::position_of(recorder);
  for (int rank = 0; rank < ranks; ++rank) {
    position.rank = rank;
    members[static_cast<size_t>(rank)]->announce(comm::to_text(position));
    EXPECT_EQ(beats[static_cast<size_t>(rank)]->try_get(comm::verdict_key), std::nullopt);
  }
  const double reported = comm::seconds_since(begin);
  const int lost = ranks / 2;
  beats[static_cast<size_t>(lost)].reset();
  const std::string gone = comm::any_gone_key;
  for (const auto& store : others) ASSERT_TRUE(store->wait({&gone, 1}, 10));
  const std::vector<RankReport> reports = comm::read_reports(*others.front(), ranks);
  const comm::Verdict verdict = comm::verdict_of(reports, {.silent_limit_s = 1e9});
  const double found = comm::seconds_since(begin);
  EXPECT_EQ(verdict.ranks, std::vector<int>{lost});
  fmt::print(
      "{} ranks, {} connections: joined in {:.2f} s, one report each in {:.2f} s, the one "
      "that ended found in {:.2f} s\n",
      ranks, 3 * ranks, joined, reported - joined, found - reported);
  members.erase(members.begin() + lost);
  for (const auto& member : members) member->leave();
}

}  // namespace
}  // namespace trireme::tests
