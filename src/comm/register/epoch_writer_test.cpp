// SPDX-License-Identifier: Apache-2.0
#include "comm/register/epoch_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "comm/register/journal_register.h"
#include "comm/store/store_server.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

class EpochWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme-writer-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    register_ = open_journal_register(folder_);
    server_ = std::make_unique<StoreServer>(
        StoreServer::Options{.host = "127.0.0.1", .run_register = register_.get()});
  }
  void TearDown() override {
    server_.reset();
    register_.reset();
    fs::remove_all(folder_);
  }

  std::unique_ptr<Store> store_of(int64_t epoch) const {
    auto store = open_store({.host = "127.0.0.1", .port = server_->port()}, 10);
    store->enter(epoch);
    return store;
  }
  void put(const RunRecord& record) {
    const int64_t revision = register_->read().revision;
    ASSERT_TRUE(
        register_->swap(revision, to_text(record), "put " + std::to_string(revision)).is_done);
  }
  RunRecord record() { return run_record_from(register_->read().value); }

  fs::path folder_;
  std::unique_ptr<JournalRegister> register_;
  std::unique_ptr<StoreServer> server_;
};

TEST_F(EpochWriterTest, writes_where_its_epoch_resumes_and_what_it_commits) {
  put({.run = "a", .epoch = 3});
  const auto store = store_of(0);
  EXPECT_EQ(EpochWriter::of(*store, ""), nullptr) << "the launcher has not said which epoch it is";
  store->set(record_epoch_key, "3");
  const auto writer = EpochWriter::of(*store, "");
  ASSERT_NE(writer, nullptr);
  writer->resumed({20, "checkpoint"});
  writer->commit(40);
  EXPECT_EQ(record().resume, (ResumePoint{20, "checkpoint"}));
  EXPECT_EQ(record().last_commit, (CommitPoint{40, 3}));
  writer->commit(40);  // again
  EXPECT_THROW(writer->commit(39), base::IoError);
}

TEST_F(EpochWriterTest, of_an_epoch_that_is_over_writes_nothing) {
  put({.run = "a", .epoch = 3});
  const auto store = store_of(0);
  EpochWriter writer(store->another(), 3, "");
  writer.commit(10);
  put({.run = "a", .epoch = 4, .last_commit = {10, 3}});
  EXPECT_THROW(writer.commit(20), base::Fenced);
  EXPECT_THROW(writer.resumed({20, "memory"}), base::Fenced);
  EXPECT_EQ(record().last_commit, (CommitPoint{10, 3}));
}

TEST_F(EpochWriterTest, another_change_at_the_same_time_is_not_lost) {
  put({.run = "a", .epoch = 0});
  const auto store = store_of(0);
  EpochWriter one(store->another(), 0, ""), other(store->another(), 0, "");
  for (int64_t step = 1; step <= 20; ++step) {
    (step % 2 == 0 ? one : other).commit(step);
    (step % 2 == 0 ? other : one).resumed({step, "memory"});
  }
  EXPECT_EQ(record().last_commit, (CommitPoint{20, 0}));
  EXPECT_EQ(record().resume.step, 20);
}

// The ranks save before they end, and no other launcher may have begun an epoch meanwhile.
TEST_F(EpochWriterTest, writes_to_the_journal_of_a_launcher_that_has_ended) {
  put({.run = "a", .epoch = 3});
  const auto store = store_of(0);
  EpochWriter writer(store->another(), 3, folder_), other(store->another(), 3, "");
  writer.commit(10);
  server_.reset();
  EXPECT_THROW(writer.commit(20), base::IoError) << "another process has the journal";
  register_.reset();
  EXPECT_THROW(other.commit(20), base::CommAborted) << "it has no folder";
  writer.commit(20);
  register_ = open_journal_register(folder_);
  EXPECT_EQ(record().last_commit, (CommitPoint{20, 3}));
  put({.run = "a", .epoch = 4, .last_commit = {20, 3}});
  register_.reset();
  EXPECT_THROW(writer.commit(30), base::Fenced);
  fs::remove(folder_ / journal_name);
  EXPECT_THROW(writer.commit(30), base::CommAborted) << "there is no journal";
  EXPECT_FALSE(fs::exists(folder_ / journal_name));
}

}  // namespace
}  // namespace trireme::comm
