// SPDX-License-Identifier: Apache-2.0
// Epochs of a store: keys and names of each are apart, and lower ones are refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>

#include "base/error.h"
#include "comm/store/membership.h"
#include "comm/store/store.h"
#include "comm/store/store_server.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

class StoreEpochs : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      server_ = std::make_unique<StoreServer>(StoreServer::Options{.host = "127.0.0.1"});
      return;
    }
    std::string name = (std::filesystem::temp_directory_path() / "trireme_epochs_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  std::unique_ptr<Store> open() const {
    if (!server_) return open_store({.is_folder = true, .folder = folder_}, 5);
    return open_store({.host = "127.0.0.1", .port = server_->port()}, 5);
  }
  std::unique_ptr<Store> open(int64_t epoch) const {
    auto store = open();
    store->enter(epoch);
    return store;
  }

  std::string folder_;
  std::unique_ptr<StoreServer> server_;
};

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::Fenced& error) {
    return error.what();
  }
  return "none";
}

TEST_P(StoreEpochs, have_keys_of_their_own) {
  const auto run = open(), first = open(1);
  run->set("a", "run");
  first->set("a", "first");
  EXPECT_EQ(first->another()->try_get("a"), "first");
  const auto second = open(2);
  EXPECT_EQ(second->try_get("a"), std::nullopt);
  EXPECT_EQ(second->add("count", 2), 2);
  EXPECT_EQ(second->set_once("a", "second"), "second");
  EXPECT_EQ(run->try_get("a"), "run");
  EXPECT_EQ(run->try_get(Store::epoch_key(1, "a")), "first");
  EXPECT_EQ(run->try_get(Store::epoch_key(2, "a")), "second");
}

TEST_P(StoreEpochs, a_lower_one_is_refused) {
  const auto late = open(4), also_late = late->another();
  late->set("a", "4");
  const auto next = open(5);
  const std::string why = "epoch 5 of this run has begun; this process belongs to epoch 4";
  const std::string key = "a";
  EXPECT_EQ(refusal_of([&] { late->set("a", "x"); }), why);
  EXPECT_EQ(refusal_of([&] { (void)late->set_once("b", "x"); }), why);
  EXPECT_EQ(refusal_of([&] { (void)late->add("n", 1); }), why);
  EXPECT_EQ(refusal_of([&] { (void)also_late->try_get("a"); }), why);
  EXPECT_EQ(refusal_of([&] { (void)also_late->wait({&key, 1}, 0); }), why);
  EXPECT_EQ(refusal_of([&] { (void)open(4); }), why);
  EXPECT_NO_THROW(membership_of(*late)->leave());
  EXPECT_EQ(open()->try_get(Store::epoch_key(4, "a")), "4");
  // The process itself may go on, in the newest epoch.
  late->enter(5);
  EXPECT_EQ(late->try_get("a"), std::nullopt);
}

TEST_P(StoreEpochs, one_that_waits_is_refused_when_the_next_begins) {
  const auto late = open(0);
  auto waiting = std::async(std::launch::async,
                            [&] { return refusal_of([&] { (void)late->get("never", 60); }); });
  const auto next = open(1);
  EXPECT_EQ(waiting.get(), "epoch 1 of this run has begun; this process belongs to epoch 0");
}

INSTANTIATE_TEST_SUITE_P(kinds, StoreEpochs, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "tcp" : "folder"; });

TEST(StoreServer, names_and_departures_belong_to_an_epoch) {
  const StoreServer server({.host = "127.0.0.1"});
  const StoreAddress address{.host = "127.0.0.1", .port = server.port()};
  const auto open = [&](int64_t epoch) {
    auto store = open_store(address, 5);
    store->enter(epoch);
    return store;
  };
  auto first = open(1), watcher = open(1);
  membership_of(*first)->join("0");
  first.reset();
  const std::string gone = gone_key("0");
  EXPECT_TRUE(watcher->wait({&gone, 1}, 5));
  const auto second = open(2);
  EXPECT_EQ(second->try_get(gone), std::nullopt);
  EXPECT_EQ(second->try_get(any_gone_key), std::nullopt);
  membership_of(*second)->join("0");
  // One that lived on in the first epoch, and ends now, is no loss of the second.
  watcher.reset();
  EXPECT_EQ(second->try_get(any_gone_key), std::nullopt);
}

TEST(StoreServer, keeps_the_keys_of_two_epochs) {
  const StoreServer server({.host = "127.0.0.1"});
  const StoreAddress address{.host = "127.0.0.1", .port = server.port()};
  const auto run = open_store(address, 5), rank = open_store(address, 5);
  std::set<int64_t> entered;
  for (int64_t epoch = 0; epoch < 50; epoch += 1 + epoch % 3) {
    rank->enter(epoch);
    rank->set("a", "1");
    entered.insert(epoch);
    for (const int64_t old : entered) {
      EXPECT_EQ(run->try_get(Store::epoch_key(old, "a")).has_value(), old >= epoch - 1) << old;
    }
  }
}

}  // namespace
}  // namespace trireme::comm
