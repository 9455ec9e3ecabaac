// SPDX-License-Identifier: Apache-2.0
// The store used by threads: one set of tests for both kinds, then tests of the server only.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "comm/store/membership.h"
#include "comm/store/store_folder.h"
#include "comm/store/store_server.h"
#include "comm/store/store_socket.h"
#include "comm/store/store_tcp.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

StoreAddress local(const StoreServer& server, const std::string& host = "127.0.0.1") {
  return {.host = host, .port = server.port()};
}

class StoreTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      server_ = std::make_unique<StoreServer>(StoreServer::Options{.grace_s = 0});
      return;
    }
    std::string name = (fs::temp_directory_path() / "trireme_store_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }
  std::unique_ptr<Store> open() const {
    if (server_) return open_store(local(*server_), 5);
    return open_store({.is_folder = true, .folder = folder_.string()}, 5);
  }

  std::unique_ptr<StoreServer> server_;
  fs::path folder_;
};

TEST_P(StoreTest, keeps_any_key_and_value) {
  const auto store = open(), other = open();
  const std::string odd("\0/.. %\xff\n", 8);
  store->set(odd, odd);
  store->set("empty", "");
  store->set("again", "1");
  store->set("again", "2");
  EXPECT_EQ(other->try_get(odd), odd);
  EXPECT_EQ(other->try_get("empty"), "");
  EXPECT_EQ(other->try_get("again"), "2");
  EXPECT_EQ(other->try_get("none"), std::nullopt);
  EXPECT_EQ(other->get("again", 0), "2");
}

TEST_P(StoreTest, first_set_once_wins) {
  std::vector<std::string> stood(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < stood.size(); ++i) {
    threads.emplace_back([&, i] { stood[i] = open()->set_once("verdict", std::to_string(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : stood) EXPECT_EQ(one, stood.front());
  EXPECT_EQ(open()->try_get("verdict"), stood.front());
}

TEST_P(StoreTest, add_counts_every_call) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto store = open();
      for (int call = 0; call < 50; ++call) store->add("count", 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(open()->add("count", -400), 0);
}

TEST_P(StoreTest, wait_ends_when_the_last_key_is_set) {
  const auto store = open();
  std::thread setter([&] {
    const auto own = store->another();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    own->set("a", "1");
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    own->set("b", "2");
  });
  const std::array<std::string, 2> keys = {"a", "b"};
  EXPECT_TRUE(store->wait(keys, 10));
  EXPECT_EQ(store->try_get("b"), "2");
  setter.join();
}

TEST_P(StoreTest, wait_and_get_end_at_their_deadline) {
  const auto store = open();
  const std::array<std::string, 1> keys = {"never"};
  EXPECT_FALSE(store->wait(keys, 0.1));
  EXPECT_THROW(store->get("never", 0.1), base::CommAborted);
}

TEST_P(StoreTest, members_were_seen_when_they_announced_themselves) {
  const auto first = open(), second = open();
  const auto one = membership_of(*first), two = membership_of(*second);
  const auto begin = std::chrono::steady_clock::now();
  one->join("old");
  one->announce("1");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  two->join("new");
  two->announce("2");
  const std::array<std::string, 3> names = {"old", "new", "none"};
  constexpr double now = 1000;
  const std::vector<MemberFacts> members = one->members(names, now);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(members[0].state == "1" && members[1].state == "2" && !members[2].state);
  constexpr double clock_tick = 0.02;  // times of files are those of the kernel's timer
  EXPECT_GE(members[1].seen_at - members[0].seen_at, 0.2 - clock_tick);
  EXPECT_LE(members[1].seen_at, now + clock_tick);
  EXPECT_GE(members[0].seen_at, now - passed.count() - clock_tick);
  EXPECT_EQ(alive(members, now, 60), (std::vector<std::string>{"old", "new"}));
  EXPECT_EQ(alive(members, members[0].seen_at + 60.01, 60), std::vector<std::string>{"new"});
}

INSTANTIATE_TEST_SUITE_P(kinds, StoreTest, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "tcp" : "folder"; });

TEST(StoreServer, records_clients_that_ended_without_leaving) {
  const StoreServer server({.grace_s = 0});
  TcpStore watcher(local(server), {.deadline_s = 5});
  {
    TcpStore first(local(server), {}), second(local(server), {}), third(local(server), {});
    first.join("1");
    second.join("2");
    second.leave();
    third.set("here", "1");
  }
  EXPECT_EQ(watcher.get(gone_key("1"), 5), "0");
  EXPECT_EQ(watcher.try_get(gone_key("2")), std::nullopt);
}

TEST(StoreServer, listens_on_both_families) {
  const StoreServer server({.grace_s = 0});
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    try {
      TcpStore store(local(server, host), {.deadline_s = 0.2});
      store.set("key", host);
      EXPECT_EQ(store.try_get("key"), host);
    } catch (const base::CommAborted& error) {
      EXPECT_STREQ(host, "::1") << error.what();  // a machine may be without IPv6
    }
  }
}

TEST(StoreServer, a_port_in_use_is_refused_with_advice) {
  const StoreServer server({});
  try {
    const StoreServer again({.port = server.port()});
    FAIL();
  } catch (const base::IoError& error) {
    EXPECT_NE(std::string(error.what()).find("another port"), std::string::npos);
  }
}

TEST(StoreServer, end_of_the_server_wakes_a_waiting_client) {
  auto server = std::make_unique<StoreServer>(StoreServer::Options{});
  TcpStore store(local(*server), {.deadline_s = 5});
  std::atomic<bool> threw = false;
  std::thread waiter([&] {
    try {
      store.get("never", 60);
    } catch (const base::CommAborted& error) {
      threw = std::string(error.what()).find("is gone") != std::string::npos;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.reset();
  waiter.join();
  EXPECT_TRUE(threw);
  EXPECT_THROW(store.set("a", "b"), base::CommAborted);
}

// Jobs and attempts do not use the store of another.
TEST(StoreServer, rejects_clients_with_another_token) {
  const StoreServer server({.token = "job 1"});
  TcpStore own(local(server), {.token = "job 1"});
  own.set("a", "1");
  for (const char* token : {"", "job 2", "job 1 "}) {
    try {
      TcpStore other(local(server), {.deadline_s = 0.2, .token = token});
      ADD_FAILURE() << token;
    } catch (const base::CommAborted& error) {
      EXPECT_NE(std::string(error.what()).find("belongs to another job"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(own.try_get("a"), "1");
}

std::string refusal_of(TcpStore& store, const std::string& name) {
  try {
    store.join(name);
  } catch (const base::CommAborted& error) {
    return error.what();
  }
  return "";
}

TEST(StoreServer, a_name_has_one_live_holder) {
  const StoreServer server({.grace_s = 0});
  auto first = std::make_unique<TcpStore>(local(server), StoreOptions{});
  TcpStore second(local(server), {}), third(local(server), {}), watcher(local(server), {});
  EXPECT_EQ(refusal_of(*first, "1"), "");
  EXPECT_NE(refusal_of(second, "1").find("'1' is already process "), std::string::npos);
  EXPECT_FALSE(watcher.try_get(gone_key("1")));  // the refused client had no name
  first.reset();
  const std::string gone = gone_key("1");
  EXPECT_TRUE(watcher.wait({&gone, 1}, 5));
  EXPECT_EQ(watcher.try_get(any_gone_key), "1");
  EXPECT_EQ(refusal_of(third, "1"), "");
}

// Without a token only the start time distinguishes attempts: a process that started before the
// store is replaced by a younger one.
TEST(StoreServer, a_process_left_over_from_an_earlier_attempt_is_replaced) {
  // All clients of this process have one start time, which is before that of this server.
  TcpStore early_start(local(StoreServer({})), {});
  const StoreServer server({.head_start_s = 0, .grace_s = 0.5});
  const base::Descriptor stale(connect_to(local(server), {}, [](int) { return std::string(); }));
  const std::string join =
      store_handshake("") + encode({StoreCode::join, {"1", "process 5 on old", "1000.5"}});
  ASSERT_EQ(::send(stale.value(), join.data(), join.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(join.size()));
  TcpStore young(local(server), {});
  EXPECT_EQ(refusal_of(young, "1"), "");
  std::string in(4096, '\0');
  is_socket_ready(stale.value(), POLLIN, socket_time_after(5));
  in.resize(
      static_cast<size_t>(std::max<ssize_t>(0, ::recv(stale.value(), in.data(), in.size(), 0))));
  EXPECT_NE(in.find("left over from an earlier attempt"), std::string::npos) << in;
  // If it is the only one, it is accepted after the grace period.
  TcpStore other(local(server), {});
  EXPECT_EQ(refusal_of(other, "2"), "");
}

TEST(TcpStore, waiting_ends_when_stop_is_set) {
  int port = 0;
  { port = StoreServer({}).port(); }
  std::atomic<bool> stop{false};
  std::thread asking([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
  });
  EXPECT_THROW(TcpStore({.host = "127.0.0.1", .port = port}, {.deadline_s = 60, .stop = &stop}),
               base::Stopped);
  asking.join();
}

// The server survives any bytes of another program and keeps serving its clients.
TEST(StoreServer, survives_malformed_clients) {
  const StoreServer server({.grace_s = 0});
  TcpStore store(local(server), {.deadline_s = 5});
  std::mt19937 random(7);
  std::vector<std::string> attacks = {
      "GET / HTTP/1.1\r\n\r\n",
      std::string(64, '\0'),
      "TRIREME2",
      store_handshake("another job"),
      store_handshake("") + "\xff\xff\xff\xff",
      store_handshake("") + std::string("\0\0\0\0", 4),
      store_handshake("") + std::string("\x05\0\0\0\x00\xff\xff\0\0", 9)};
  for (int i = 0; i < 200; ++i) {
    const auto code = static_cast<StoreCode>(random() % 9);
    std::vector<std::string> fields(random() % 4);
    for (std::string& field : fields) field = std::string(random() % 30, 'x');
    std::string bytes = encode({code, fields});
    if (random() % 2 == 0) bytes[random() % bytes.size()] = static_cast<char>(random());
    attacks.push_back(store_handshake("") + bytes);
  }
  for (const std::string& attack : attacks) {
    const base::Descriptor socket(
        connect_to(local(server), {.deadline_s = 5}, [](int) { return std::string(); }));
    ASSERT_EQ(::send(socket.value(), attack.data(), attack.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(attack.size()));
    is_socket_ready(socket.value(), POLLIN, socket_time_after(0.002));
    store.set("alive", "yes");
  }
  EXPECT_EQ(store.try_get("alive"), "yes");
}

TEST(StoreWire, frames_round_trip_also_in_pieces) {
  const std::vector<StoreMessage> messages = {
      {StoreCode::leave, {}}, {StoreCode::set, {"a", ""}}, {StoreCode::read, {"", "b", "c"}}};
  std::string all;
  for (const StoreMessage& message : messages) all += encode(message);
  std::string received;
  std::vector<StoreMessage> found;
  for (const char c : all) {
    received += c;
    while (const auto message = take_frame(received)) found.push_back(*message);
  }
  EXPECT_EQ(found, messages);
  EXPECT_TRUE(received.empty());
}

TEST(StoreAddress, reads_all_forms_and_reports_what_is_wrong) {
  EXPECT_EQ(parse_store_address("node1:29500").text(), "node1:29500");
  EXPECT_EQ(parse_store_address("tcp://[::1]:1").host, "::1");
  EXPECT_EQ(parse_store_address("tcp://[::1]:1").text(), "[::1]:1");
  EXPECT_EQ(parse_store_address("file:///shared/x").folder, "/shared/x");
  EXPECT_TRUE(parse_store_address("./x").is_folder);
  for (const char* wrong : {"", "node1", "node1:", ":1", "a:0", "a:65536", "::1:5", "a:1x"}) {
    EXPECT_THROW(parse_store_address(wrong), base::ConfigError) << wrong;
  }
}

TEST(TcpStore, reports_that_no_server_listens) {
  int port = 0;
  { port = StoreServer({}).port(); }
  try {
    TcpStore store({.host = "127.0.0.1", .port = port}, {.deadline_s = 0.1});
    FAIL();
  } catch (const base::CommAborted& error) {
    EXPECT_NE(std::string(error.what()).find("cannot be reached"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::comm
