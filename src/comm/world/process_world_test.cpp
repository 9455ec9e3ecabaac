// SPDX-License-Identifier: Apache-2.0
// Several ranks of a run inside one process, each with its own handle on the store: how they notify
// each other of a failure, with any back end.
#include "comm/world/process_world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "comm/store/store_server.h"
#include "comm/store/store_tcp.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

class ProcessWorldTest : public testing::Test {
 protected:
  RankInfo info(int rank, bool is_watched = false) const {
    RankInfo made{.rank = rank, .world = 3, .local_rank = rank, .local_world = 3};
    made.store = "127.0.0.1:" + std::to_string(server_.port());
    made.is_watched = is_watched;
    made.flight_folder = folder_.string();
    return made;
  }
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme_world_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (int rank = 0; rank < 3; ++rank) {
      worlds_.push_back(std::make_unique<ProcessWorld>(info(rank)));
    }
  }
  void TearDown() override {
    worlds_.clear();
    fs::remove_all(folder_);
  }
  ProcessWorld& world(int rank) { return *worlds_[static_cast<size_t>(rank)]; }
  int64_t enter(int rank, int64_t sequence) {
    const int64_t id = world(rank).recorder().scheduled(
        {.sequence = sequence, .group = "world", .ranks = {0, 1, 2}, .op = "all_reduce"});
    world(rank).recorder().started(id);
    return id;
  }
  // Returns the message that fail() throws.
  std::string failure(int rank, ProcessWorld::Failure failure, double deadline_s) {
    try {
      world(rank).fail(failure, "the library's words", deadline_s);
    } catch (const base::CommAborted& error) {
      return error.what();
    }
  }
  static void pause(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  // A program that has run tests for seconds would be taken for one of an earlier attempt.
  StoreServer server_{{.host = "127.0.0.1", .grace_s = 0}};
  fs::path folder_;
  std::vector<std::unique_ptr<ProcessWorld>> worlds_;
};

// Rank 2 reports its flag only after the others have waited for it in vain.
TEST_F(ProcessWorldTest, calls_are_ended_when_the_flags_of_all_ranks_are_set_or_a_rank_is_late) {
  std::array<int32_t, 3> flags = {};
  for (size_t rank = 0; rank < flags.size(); ++rank) {
    world(static_cast<int>(rank)).abort_flags().add(flags[rank]);
  }
  const auto flag = [&](size_t rank) { return std::atomic_ref(flags[rank]).load(); };
  world(1).abort("planted");
  EXPECT_EQ(flag(1), AbortFlags::raised);
  std::thread other([this] {
    while (!world(0).is_aborted()) pause(0.01);
    world(0).await_abort_flags();
  });
  world(1).await_abort_flags();
  other.join();
  EXPECT_EQ(flag(0), AbortFlags::raised);
  for (int i = 0; i < 500 && !world(2).is_aborted(); ++i) pause(0.01);
  EXPECT_EQ(flag(2), AbortFlags::raised);
  world(2).await_abort_flags();
  EXPECT_EQ(flag(2), AbortFlags::raised_late);
  EXPECT_EQ(flag(1), AbortFlags::raised);
  for (size_t rank = 0; rank < flags.size(); ++rank) {
    world(static_cast<int>(rank)).abort_flags().remove(flags[rank]);
  }
}

TEST_F(ProcessWorldTest, no_rank_is_late_if_all_report) {
  world(0).abort("planted");
  std::vector<std::thread> others;
  for (int rank = 0; rank < 3; ++rank) {
    others.emplace_back([this, rank] {
      while (!world(rank).is_aborted()) pause(0.01);
      world(rank).await_abort_flags();
    });
  }
  for (std::thread& one : others) one.join();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(world(rank).abort_flags().value(), AbortFlags::raised);
  }
}

TEST_F(ProcessWorldTest, abort_of_one_wakes_all_and_the_first_reason_is_kept) {
  std::atomic<int> woken = 0;
  std::vector<std::unique_ptr<ProcessWorld::Wake>> wakes;
  for (int rank = 0; rank < 3; ++rank) {
    wakes.push_back(std::make_unique<ProcessWorld::Wake>(world(rank), [&] { ++woken; }));
  }
  world(1).abort("the disk is full");
  EXPECT_EQ(world(1).verdict()->text, "the disk is full");
  for (int i = 0; i < 100 && woken < 3; ++i) pause(0.02);
  EXPECT_EQ(woken, 3);
  world(2).abort("too late");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(world(rank).verdict()->text, "the disk is full");
  {
    const ProcessWorld::Wake late(world(0), [&] { ++woken; });
  }
  EXPECT_EQ(woken, 4);
  const std::string key = "never";
  EXPECT_THROW(world(0).wait_for({&key, 1}, 60), base::CommAborted);
  wakes.clear();
  worlds_.clear();
  for (const char* name : {"rank_0.json", "rank_1.json", "rank_2.json"}) {
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  }
}

TEST_F(ProcessWorldTest, a_deadline_names_the_rank_that_did_not_enter) {
  world(2).recorder().completed(enter(2, 4));
  enter(0, 5);
  enter(1, 5);
  pause(0.6);  // two heartbeats
  const std::string verdict = failure(0, ProcessWorld::Failure::deadline, 0.5);
  EXPECT_EQ(verdict,
            "rank 2 did not enter all_reduce #5 of group 'world' within 0.5 s; ranks 0 and 1 are "
            "waiting; the last call that rank 2 finished was all_reduce #4 of group 'world'");
  EXPECT_EQ(failure(1, ProcessWorld::Failure::connection, 0.5), verdict);
}

TEST_F(ProcessWorldTest, rank_that_left_is_named_and_a_clean_end_leaves_no_record) {
  enter(0, 5);
  enter(1, 5);
  worlds_.pop_back();
  const std::string verdict = failure(0, ProcessWorld::Failure::connection, 30);
  EXPECT_EQ(verdict.find("rank 2 did not enter"), 0U) << verdict;
  EXPECT_NE(verdict.find("rank 2 has left the run"), std::string::npos) << verdict;
  EXPECT_FALSE(fs::exists(folder_ / "rank_2.json"));
}

TEST_F(ProcessWorldTest, one_rank_needs_no_store) {
  ProcessWorld alone(RankInfo{});
  alone.abort("for a test");
  EXPECT_EQ(alone.verdict()->text, "for a test");
}

// A back end may wait for a dead rank until its deadline; the heartbeat finds it earlier.
TEST(ProcessWorld, a_rank_that_ended_is_found_even_if_no_call_fails) {
  const StoreServer server({.host = "127.0.0.1", .token = "job"});
  RankInfo info{.rank = 0, .world = 2, .local_world = 2};
  info.store = "127.0.0.1:" + std::to_string(server.port());
  info.token = "job";
  ProcessWorld world(info, {.deadline_s = 30, .heartbeat_s = 0.01, .gone_s = 0.05});
  world.keep_flight(false);
  {
    TcpStore other(parse_store_address(info.store), {.token = "job"});
    other.enter(info.epoch);
    other.join("1");
  }
  for (int i = 0; i < 1000 && !world.is_aborted(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(world.is_aborted());
  EXPECT_EQ(world.verdict()->kind, VerdictKind::died);
  EXPECT_EQ(world.verdict()->ranks, std::vector<int>{1});
  EXPECT_EQ(world.verdict()->cause, "exited without reporting an error");
}

}  // namespace
}  // namespace trireme::comm
