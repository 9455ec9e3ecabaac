// SPDX-License-Identifier: Apache-2.0
// A server that goes on where another one ended, and clients that do not notice.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/store/membership.h"
#include "comm/store/store.h"
#include "comm/store/store_log.h"
#include "comm/store/store_server.h"
#include "comm/store/store_socket.h"
#include "comm/store/store_wire.h"

namespace trireme::comm {
namespace {

base::Descriptor copy_of(int descriptor) {
  return base::Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
}

// A server whose sockets and memory are held outside of it, as a guardian does.
class StoreLogTest : public testing::Test {
 protected:
  void SetUp() override { start(); }

  void start() {
    const int from = file_.empty() ? StoreLog::new_file().release() : copy_of(file_.back().value()).release();
    log_ = std::make_unique<StoreLog>(base::Descriptor(from), [this](int file) { keep(file); });
    keep(log_->descriptor());
    std::vector<int> numbers;
    for (const base::Descriptor& socket : sockets_) numbers.push_back(socket.value());
    server_ = std::make_unique<StoreServer>(StoreServer::Options{
        .host = "127.0.0.1", .token = "t", .log = log_.get(), .sockets = numbers, .rejoin_s = 0.3});
    if (!sockets_.empty()) return;
    for (const int socket : server_->sockets()) sockets_.push_back(copy_of(socket));
    port_ = server_->port();
  }
  void end() {
    server_.reset();
    log_.reset();
  }
  std::unique_ptr<Store> open(int64_t epoch = -1, double outage_s = 20) {
    auto store = open_store({.host = "127.0.0.1", .port = port_},
                            {.deadline_s = 5,
                             .reply_timeout_s = 5,
                             .outage_s = outage_s,
                             .is_leaving = &is_leaving_,
                             .token = "t"});
    if (epoch >= 0) store->enter(epoch);
    return store;
  }
  void keep(int file) {
    file_.clear();
    file_.push_back(copy_of(file));
  }

  std::vector<base::Descriptor> file_, sockets_;
  std::atomic<bool> is_leaving_ = false;
  int port_ = 0;
  std::unique_ptr<StoreLog> log_;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(StoreLogTest, keys_and_epochs_outlive_the_server) {
  const auto run = open(), first = open(1), second = open(2);
  run->set("of the run", "1");
  second->set("x", "old");
  second->set("x", "new");
  EXPECT_EQ(second->set_once("y", "a"), "a");
  EXPECT_EQ(second->add("sum", 3), 3);
  end();
  start();
  EXPECT_EQ(run->try_get("of the run"), "1");
  EXPECT_EQ(second->try_get("x"), "new");
  EXPECT_EQ(second->set_once("y", "b"), "a");
  EXPECT_EQ(second->add("sum", 4), 7);
  EXPECT_THROW((void)first->try_get("x"), base::Fenced);
  EXPECT_THROW((void)open(1), base::Fenced);
}

TEST_F(StoreLogTest, a_waiting_client_waits_on) {
  const auto waiting = open(), other = open();
  std::future<bool> waited = std::async(std::launch::async, [&] {
    const std::string key = "later";
    return waiting->wait({&key, 1}, 20);
  });
  end();
  start();
  other->set("later", "1");
  EXPECT_TRUE(waited.get());
}

TEST_F(StoreLogTest, only_members_that_do_not_come_back_have_gone) {
  const auto a = open(4), look = open(4);
  auto b = open(4, 0);
  const auto stays = membership_of(*a), leaves = membership_of(*b), sees = membership_of(*look);
  stays->join("a");
  leaves->join("b");
  stays->announce("here");
  end();
  start();
  stays->announce("here again");
  while (!sees->changed(0)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::vector<std::string> names = {"a", "b"};
  const auto facts = sees->members(names, 0);
  EXPECT_FALSE(facts[0].departure);
  EXPECT_EQ(facts[0].state, "here again");
  EXPECT_TRUE(facts[1].departure);
  // Another process takes the name.
  b = open(4);
  const auto follows = membership_of(*b);
  follows->join("b");
  EXPECT_FALSE(sees->members(names, 0)[1].departure);
  end();
  start();
  EXPECT_FALSE(sees->members(names, 0)[1].departure);
}

TEST_F(StoreLogTest, a_sum_whose_reply_was_lost_is_added_once) {
  // As TcpStore asks, on a connection that is lost before the reply is read.
  const StoreAddress address{.host = "127.0.0.1", .port = port_};
  const auto ask = [&](const std::string& number) {
    const int socket = connect_to(address, {.deadline_s = 5}, [&](int connected) {
      const std::string out =
          store_handshake("t") + encode({StoreCode::add, {"sum", "5", "client", number}});
      return ::write(connected, out.data(), out.size()) == static_cast<ssize_t>(out.size())
                 ? std::string()
                 : "write";
    });
    ::close(socket);
  };
  const auto store = open();
  const auto wait_for = [&](const std::string& value) {
    while (store->try_get("sum") != value) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  ask("1");
  wait_for("5");
  end();
  start();
  ask("1");
  ask("2");
  wait_for("10");
  EXPECT_EQ(store->add("sum", 1), 11);
}

TEST_F(StoreLogTest, is_rewritten_when_it_is_long) {
  const auto store = open(0), run = open();
  const std::string text(1000, 'x');
  for (int i = 0; i < 5000; ++i) store->set("beat", text + std::to_string(i));
  run->set("kept", "1");
  const off_t bytes = ::lseek(file_.back().value(), 0, SEEK_END);
  EXPECT_LT(bytes, 2 << 20);
  EXPECT_GT(bytes, 0);
  end();
  start();
  EXPECT_EQ(store->try_get("beat"), text + "4999");
  EXPECT_EQ(run->try_get("kept"), "1");
}

TEST_F(StoreLogTest, an_incomplete_end_is_cut_off) {
  const auto store = open();
  store->set("a", "1");
  end();
  const std::string torn = encode({StoreCode::set, {"b", "2"}}).substr(0, 9);
  ::lseek(file_.back().value(), 0, SEEK_END);
  ASSERT_EQ(::write(file_.back().value(), torn.data(), torn.size()),
            static_cast<ssize_t>(torn.size()));
  start();
  EXPECT_EQ(store->try_get("a"), "1");
  EXPECT_EQ(store->try_get("b"), std::nullopt);
  store->set("c", "3");
  end();
  start();
  EXPECT_EQ(store->try_get("c"), "3");
}

TEST_F(StoreLogTest, a_client_gives_up_when_the_store_stays_away) {
  const auto store = open(-1, 0.2), patient = open(-1, 1e6);
  end();
  sockets_.clear();
  EXPECT_THROW(store->set("a", "1"), base::CommAborted);
  is_leaving_ = true;
  EXPECT_THROW(patient->set("a", "1"), base::CommAborted);
}

}  // namespace
}  // namespace trireme::comm
