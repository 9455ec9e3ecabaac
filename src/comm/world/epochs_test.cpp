// SPDX-License-Identifier: Apache-2.0
#include "comm/world/epochs.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/store/store_server.h"

namespace trireme::comm {
namespace {

class EpochsTest : public testing::Test {
 protected:
  RankInfo info_of(int rank, int64_t epoch) const {
    RankInfo info{.rank = rank, .world = 2, .epoch = epoch};
    info.store = "127.0.0.1:" + std::to_string(server_.port());
    info.token = "epochs";
    info.stop = &stop_;
    return info;
  }
  std::unique_ptr<Store> store() const {
    return open_store(parse_store_address(info_of(0, 0).store), {.token = "epochs"});
  }

  StoreServer server_{{.host = "127.0.0.1", .token = "epochs"}};
  std::atomic<bool> stop_ = false;
};

TEST_F(EpochsTest, what_is_said_of_one_epoch_does_not_hold_for_another) {
  const auto table = store();
  EpochKeys keys(*table);
  const std::vector<int> ranks = {0, 1};
  keys.set_course(3, Course::regroup);
  EXPECT_EQ(keys.course(3), Course::regroup);
  EXPECT_EQ(keys.course(4), std::nullopt);
  keys.rank_has_left(3, 1);
  EXPECT_EQ(keys.have_left(3, ranks), (std::vector<bool>{false, true}));
  EXPECT_EQ(keys.have_left(4, ranks), (std::vector<bool>{false, false}));
  constexpr std::array nodes = {0, 2};
  keys.node_is_ready(4, 0, 0);
  EXPECT_FALSE(keys.are_ready(4, 0, nodes));
  keys.node_is_ready(4, 0, 2);
  EXPECT_TRUE(keys.are_ready(4, 0, nodes));
  EXPECT_FALSE(keys.are_ready(4, 1, nodes)) << "with another placement of the ranks";
  EXPECT_FALSE(keys.are_ready(5, 0, nodes));
  EXPECT_FALSE(keys.is_formed(4));
  keys.form(4);
  EXPECT_TRUE(keys.is_formed(4));
  EXPECT_FALSE(keys.wait_until_formed(5, 0.01));
}

TEST_F(EpochsTest, the_placement_and_the_spares_of_nodes_are_those_set_last) {
  const auto table = store();
  EpochKeys keys(*table);
  EXPECT_EQ(keys.placement(), std::nullopt);
  keys.set_placement("here");
  keys.set_placement("there");
  EXPECT_EQ(keys.placement(), "there");
  keys.set_spares(2, 3);
  keys.set_spares(2, 1);
  EXPECT_EQ(keys.spares(4), (std::vector<int>{0, 0, 1, 0}));
}

TEST_F(EpochsTest, a_rank_leaves_and_enters_the_next_epoch_or_ends_with_its_course) {
  const auto table = store();
  EpochKeys keys(*table);
  const auto next = next_epoch_of(info_of(1, 0));
  std::optional<RankInfo> found;
  std::thread rank([&] { found = next(); });
  const std::vector<int> ranks = {1};
  while (!keys.have_left(0, ranks)[0]) std::this_thread::yield();
  keys.form(1);
  rank.join();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->epoch, 1);
  EXPECT_EQ(found->rank, 1);
  keys.set_course(1, Course::end);
  EXPECT_FALSE(next());
}

TEST_F(EpochsTest, a_spare_becomes_the_rank_that_it_is_given) {
  const auto table = store();
  EpochKeys keys(*table);
  keys.give_part("0/7",
                 {.rank = 1, .local_rank = 1, .epoch = 5, .memory_fd = 9, .peer_memory_fd = 11});
  RankInfo spare = info_of(0, 2);
  spare.spare = "0/7";
  const RankInfo rank = await_part(spare);
  EXPECT_EQ(rank.rank, 1);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.epoch, 5);
  EXPECT_EQ(rank.memory_fd, 9);
  EXPECT_EQ(rank.peer_memory_fd, 11);
  EXPECT_TRUE(rank.joins);
  EXPECT_TRUE(rank.spare.empty());
}

TEST_F(EpochsTest, waiting_ends_with_a_request_to_stop) {
  stop_ = true;
  RankInfo spare = info_of(0, 0);
  spare.spare = "0/1";
  EXPECT_THROW((void)await_part(spare), base::Stopped);
  EXPECT_THROW(await_formation(info_of(1, 4)), base::Stopped);
  EXPECT_THROW((void)next_epoch_of(info_of(1, 0))(), base::Stopped);
}

}  // namespace
}  // namespace trireme::comm
