// SPDX-License-Identifier: Apache-2.0
// The token of a job in the folder of its run, and the search for a store with it.
#include "comm/world/job_token.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/store/store_server.h"
#include "comm/world/find_store.h"
#include "comm/world/process_world.h"
#include "comm/world/rendezvous.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

class JobTokenTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme_token_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    folder_ = root_ / "runs" / "x";
  }
  void TearDown() override { fs::remove_all(root_); }

  // A rank that was started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT alone.
  RankInfo by_hand(int rank, int port) const {
    RankInfo info{.rank = rank, .world = 2, .local_rank = rank, .local_world = 2};
    info.store = fmt::format("127.0.0.1:{}", port);
    info.hosts_store = rank == 0;
    info.run_folder = folder_.string();
    return info;
  }

  fs::path root_, folder_;
};

int unused_store_port() { return StoreServer({.host = "127.0.0.1"}).port(); }

TEST_F(JobTokenTest, only_the_user_can_read_the_file_and_it_goes_with_the_job) {
  {
    const JobTokenFile file(folder_, "attempt 1");
    EXPECT_EQ(file.token().size(), 32U);
    struct stat status {};
    ASSERT_EQ(::stat((folder_ / JobTokenFile::name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600U);
    EXPECT_EQ(read_job_token(folder_, "attempt 1"), file.token());
    EXPECT_EQ(read_job_token(folder_, "attempt 2"), std::nullopt);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  }
  EXPECT_FALSE(fs::exists(root_ / "runs")) << "folders that it created and no one used";
}

TEST_F(JobTokenTest, the_file_of_a_launcher_that_died_goes_with_the_one_after_it) {
  const auto left = std::make_unique<JobTokenFile>(folder_, "x");
  { const JobTokenFile file(folder_, "x", random_token()); }
  EXPECT_EQ(read_job_token(folder_, "x"), left->token()) << "that of another token stays";
  { const JobTokenFile file(folder_, "x", left->token()); }
  EXPECT_EQ(read_job_token(folder_, "x"), std::nullopt);
}

TEST_F(JobTokenTest, a_later_job_replaces_the_file_and_keeps_it) {
  auto first = std::make_unique<JobTokenFile>(folder_, "");
  const JobTokenFile second(folder_, "");
  EXPECT_NE(first->token(), second.token());
  first.reset();
  EXPECT_EQ(read_job_token(folder_, ""), second.token());
}

TEST_F(JobTokenTest, what_is_not_such_a_file_has_no_token) {
  fs::create_directories(folder_);
  const fs::path file = folder_ / JobTokenFile::name;
  EXPECT_EQ(read_job_token(folder_, ""), std::nullopt);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(read_job_token(folder_, ""), std::nullopt);
  fs::remove(file);
  fs::create_symlink("/dev/zero", file);
  EXPECT_EQ(read_job_token(folder_, ""), std::nullopt);
  const JobTokenFile written(folder_, "");  // replaces the link, not its target
  EXPECT_EQ(read_job_token(folder_, ""), written.token());
}

TEST_F(JobTokenTest, a_folder_that_cannot_be_written_is_named_with_the_way_out) {
  fs::create_directories(root_);
  std::string message;
  try {
    const JobTokenFile file("/proc/self/x", "");
  } catch (const base::IoError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("/proc/self/x"), std::string::npos) << message;
  EXPECT_NE(message.find("TRIREME_TOKEN"), std::string::npos) << message;
}

// Rank 1 begins with the file of an earlier attempt, whose store has ended.
TEST_F(JobTokenTest, ranks_meet_although_a_stale_file_is_there) {
  fs::create_directories(folder_);
  const JobTokenFile stale(folder_, "");
  const int port = unused_store_port();
  std::unique_ptr<ProcessWorld> one;
  std::thread second([&] {
    one = std::make_unique<ProcessWorld>(by_hand(1, port), ProcessWorld::Options{.deadline_s = 60});
  });
  const ProcessWorld zero(by_hand(0, port), {.deadline_s = 60});
  second.join();
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->info().token, zero.info().token);
  EXPECT_NE(zero.info().token, stale.token());
  EXPECT_TRUE(zero.info().has_secret_token);
  EXPECT_THROW(
      (void)open_store(parse_store_address(zero.info().store), {.retries = false, .token = ""}),
      StoreUnreachable);
  one.reset();
}

TEST_F(JobTokenTest, without_token_and_folder_a_store_for_other_hosts_is_refused) {
  RankInfo info = by_hand(0, unused_store_port());
  info.run_folder.clear();
  EXPECT_NO_THROW((void)rendezvous(info, 1));  // on the loopback address alone
  info.store = "192.0.2.1:1234";
  std::string message;
  try {
    (void)rendezvous(info, 1);
  } catch (const base::ConfigError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("TRIREME_TOKEN"), std::string::npos) << message;
  EXPECT_NE(message.find("job.dump_folder"), std::string::npos) << message;
  info.has_secret_token = true;
  info.token = "given";
  EXPECT_NO_THROW((void)rendezvous(info, 1));
}

TEST_F(JobTokenTest, a_rank_that_does_not_see_the_file_is_refused_with_the_way_out) {
  const StoreServer server({.host = "127.0.0.1", .token = "in a file elsewhere"});
  StoreSearch search{.who = "rank 1 of 2",
                     .addresses = {fmt::format("127.0.0.1:{}", server.port())},
                     .tokens =
                         [] {
                           return JobTokens{{""}, true};
                         },
                     .deadline_s = 60,
                     .missing_s = 0.1};
  EXPECT_THROW((void)find_store(search), base::ConfigError);
  // The file comes late, as on a network file system.
  std::atomic<int> rounds = 0;
  search.missing_s = 60;
  search.tokens = [&] {
    return ++rounds < 3 ? JobTokens{{""}, true} : JobTokens{{"in a file elsewhere"}, false};
  };
  EXPECT_EQ(find_store(search).token, "in a file elsewhere");
}

TEST_F(JobTokenTest, the_search_ends_when_it_is_stopped) {
  std::atomic<bool> stop = false;
  const StoreSearch search{.who = "rank 1 of 2",
                           .addresses = {fmt::format("127.0.0.1:{}", unused_store_port())},
                           .tokens =
                               [&] {
                                 stop = true;
                                 return JobTokens{{""}, false};
                               },
                           .deadline_s = 1e6,
                           .stop = &stop};
  EXPECT_THROW((void)find_store(search), base::Stopped);
}

}  // namespace
}  // namespace trireme::comm
