// SPDX-License-Identifier: Apache-2.0
// The register of a store: over its connections, after its server was started again, refused.
#include "comm/register/store_register.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/system/descriptor.h"
#include "comm/register/journal_register.h"
#include "comm/register/register_requests.h"
#include "comm/register/run_record.h"
#include "comm/store/membership.h"
#include "comm/store/store_server.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

class StoreRegisterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme_store_register_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    start();
  }
  void TearDown() override {
    server_.reset();
    register_.reset();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  void start() {
    register_ = open_journal_register(folder_);
    std::vector<int> numbers;
    for (const base::Descriptor& socket : sockets_) numbers.push_back(socket.value());
    server_ = std::make_unique<StoreServer>(StoreServer::Options{
        .host = "127.0.0.1", .sockets = numbers, .run_register = register_.get()});
    if (!sockets_.empty()) return;
    for (const int socket : server_->sockets()) {
      sockets_.emplace_back(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
    }
  }
  void end() {
    server_.reset();
    register_.reset();
  }
  std::unique_ptr<Store> open(double outage_s = 20) const {
    return open_store({.host = "127.0.0.1", .port = server_->port()},
                      {.deadline_s = 5, .reply_timeout_s = 5, .outage_s = outage_s});
  }

  fs::path folder_;
  std::vector<base::Descriptor> sockets_;
  std::unique_ptr<JournalRegister> register_;
  std::unique_ptr<StoreServer> server_;
};

std::string io_refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::IoError& error) {
    return error.what();
  }
  return "none";
}

TEST_F(StoreRegisterTest, is_one_for_all_clients) {
  const auto one = open(), two = open();
  const auto mine = register_of(*one), other = register_of(*two);
  EXPECT_EQ(mine->read(), RegisterState());
  const std::string odd("\0\n\xff", 3);
  EXPECT_EQ(mine->swap(0, odd, "1"), (Swapped{true, {1, odd}}));
  EXPECT_EQ(other->read(), (RegisterState{1, odd}));
  EXPECT_EQ(other->swap(0, "b", "2"), (Swapped{false, {1, odd}}));
  EXPECT_EQ(mine->swap(0, odd, "1"), (Swapped{true, {1, odd}}));
}

TEST_F(StoreRegisterTest, one_of_many_swaps_from_a_revision_is_done) {
  constexpr int threads = 4, rounds = 25;
  std::vector<std::thread> clients;
  std::vector<int> done(threads);
  for (int t = 0; t < threads; ++t) {
    clients.emplace_back([&, t] {
      const auto store = open();
      const auto shared = register_of(*store);
      for (int64_t round = 0; round < rounds;) {
        const std::string id = fmt::format("{}/{}", t, round);
        const Swapped swapped = shared->swap(round, id, id);
        done[static_cast<size_t>(t)] += swapped.is_done ? 1 : 0;
        round = swapped.state.revision;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  int sum = 0;
  for (const int one : done) sum += one;
  EXPECT_EQ(sum, rounds);
  EXPECT_EQ(register_->read().revision, rounds);
}

TEST_F(StoreRegisterTest, a_client_survives_the_restart_of_the_server) {
  const auto store = open();
  const auto shared = register_of(*store);
  EXPECT_TRUE(shared->swap(0, "a", "1").is_done);
  end();
  start();
  EXPECT_EQ(shared->read(), (RegisterState{1, "a"}));
  EXPECT_EQ(shared->swap(0, "a", "1"), (Swapped{true, {1, "a"}}));
  EXPECT_EQ(shared->swap(1, "b", "2"), (Swapped{true, {2, "b"}}));
}

TEST_F(StoreRegisterTest, a_handle_of_a_lower_epoch_is_fenced) {
  const auto late = open(), next = open();
  late->enter(1);
  const auto shared = register_of(*late);
  EXPECT_TRUE(shared->swap(0, "a", "1").is_done);
  next->enter(2);
  EXPECT_THROW((void)shared->read(), base::Fenced);
  EXPECT_THROW((void)shared->swap(1, "b", "2"), base::Fenced);
  EXPECT_EQ(register_of(*next)->read(), (RegisterState{1, "a"}));
}

class BrokenRegister final : public Register {
 public:
  RegisterState read() override { throw base::IoError("no space"); }

 private:
  Swapped swap_checked(int64_t, const std::string&, const std::string&) override {
    throw base::IoError("no space");
  }
};

TEST_F(StoreRegisterTest, a_failure_of_the_disk_does_not_end_a_membership) {
  BrokenRegister broken;
  const StoreServer server({.host = "127.0.0.1", .run_register = &broken});
  const StoreAddress address{.host = "127.0.0.1", .port = server.port()};
  const auto store = open_store(address, 5), look = open_store(address, 5);
  membership_of(*store)->join("a");
  const auto shared = register_of(*store);
  const std::string why = io_refusal_of([&] { (void)shared->swap(0, "x", "1"); });
  EXPECT_NE(why.find("refused: no space"), std::string::npos) << why;
  EXPECT_NE(io_refusal_of([&] { (void)shared->read(); }), "none");
  EXPECT_NO_THROW(store->set("a", "1"));
  EXPECT_EQ(membership_of(*look)->changed(0), std::nullopt);
}

TEST_F(StoreRegisterTest, a_store_without_one_refuses) {
  const StoreServer bare({.host = "127.0.0.1"});
  const auto store = open_store({.host = "127.0.0.1", .port = bare.port()}, 5);
  const auto shared = register_of(*store);
  EXPECT_NE(
      io_refusal_of([&] { (void)shared->read(); }).find("refused: this store has no register"),
      std::string::npos);
  EXPECT_NE(io_refusal_of([&] { (void)shared->swap(0, "a", "1"); }), "none");
  store->set("a", "1");
  EXPECT_EQ(store->try_get("a"), "1");
  const auto folder = open_store({.is_folder = true, .folder = folder_.string()}, 5);
  EXPECT_THROW((void)register_of(*folder), base::ConfigError);
}

TEST_F(StoreRegisterTest, malformed_requests_have_no_answer) {
  const auto answer = [&](const StoreMessage& request) {
    return answer_from(register_.get(), request).has_value();
  };
  EXPECT_TRUE(answer({StoreCode::register_read, {}}));
  EXPECT_FALSE(answer({StoreCode::register_read, {"0"}}));
  EXPECT_TRUE(answer({StoreCode::register_swap, {"5", "value", "id"}}));
  EXPECT_FALSE(answer({StoreCode::register_swap, {"five", "value", "id"}}));
  EXPECT_FALSE(answer({StoreCode::register_swap, {"5", "value"}}));
  EXPECT_FALSE(answer({StoreCode::register_swap, {}}));
  EXPECT_EQ(register_->read(), RegisterState());
}

TEST_F(StoreRegisterTest, holds_the_record_of_a_run) {
  const auto store = open();
  const auto shared = register_of(*store);
  const EpochChange change{.members = {{"a", own_incarnation()}}, .reason = "start"};
  const RunRecord first = first_epoch("r", change).value();
  ASSERT_TRUE(shared->swap(0, to_text(first), "1").is_done);
  const RegisterState state = shared->read();
  const RunRecord next = commit(run_record_from(state.value), 5, 0).value();
  ASSERT_TRUE(shared->swap(state.revision, to_text(next), "2").is_done);
  EXPECT_EQ(run_record_from(shared->read().value).last_commit, (CommitPoint{5, 0}));
}

}  // namespace
}  // namespace trireme::comm
