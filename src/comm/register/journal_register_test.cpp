// SPDX-License-Identifier: Apache-2.0
// The journal of a register: histories that are cut at every byte, damaged in every bit, written
// by two processes, rewritten, or end on a full disk.
#include "comm/register/journal_register.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/register/journal_disk.h"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

class JournalRegisterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme_register_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::unique_ptr<JournalRegister> open() const { return open_journal_register(folder_); }
  fs::path journal() const { return folder_ / "register.journal"; }
  std::string bytes() const {
    std::ifstream in(journal(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& content) const {
    std::ofstream(journal(), std::ios::binary | std::ios::trunc) << content;
  }
  // Three swaps. Returns the length of the journal after each, beginning with none.
  std::vector<size_t> write_three() const {
    const auto made = open();
    std::vector<size_t> ends = {bytes().size()};
    for (const std::string value : {"one", "", "three"}) {
      const int64_t revision = static_cast<int64_t>(ends.size());
      EXPECT_TRUE(made->swap(revision - 1, value, "id" + std::to_string(revision)).is_done);
      ends.push_back(bytes().size());
    }
    return ends;
  }

  fs::path folder_;
};

const std::vector<RegisterState> three_states = {{0, ""}, {1, "one"}, {2, ""}, {3, "three"}};

std::string io_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::IoError& error) {
    return error.what();
  }
  return "none";
}

TEST_F(JournalRegisterTest, swaps_only_from_the_newest_revision) {
  const auto made = open();
  EXPECT_EQ(made->read(), RegisterState());
  EXPECT_EQ(made->swap(0, "a", "1"), (Swapped{true, {1, "a"}}));
  EXPECT_EQ(made->swap(0, "b", "2"), (Swapped{false, {1, "a"}}));
  EXPECT_EQ(made->swap(2, "b", "3"), (Swapped{false, {1, "a"}}));
  EXPECT_EQ(made->swap(1, "b", "4"), (Swapped{true, {2, "b"}}));
  EXPECT_EQ(made->read(), (RegisterState{2, "b"}));
}

TEST_F(JournalRegisterTest, a_repeated_request_is_done_once) {
  auto made = open();
  EXPECT_TRUE(made->swap(0, "a", "first").is_done);
  EXPECT_TRUE(made->swap(1, "b", "second").is_done);
  EXPECT_EQ(made->swap(0, "a", "first"), (Swapped{true, {1, "a"}}));
  made.reset();
  made = open();
  EXPECT_EQ(made->swap(1, "b", "second"), (Swapped{true, {2, "b"}}));
  EXPECT_EQ(made->swap(0, "a", "first"), (Swapped{true, {1, "a"}}));
  EXPECT_EQ(made->read(), (RegisterState{2, "b"}));
}

TEST_F(JournalRegisterTest, any_bytes_below_the_limit_are_kept) {
  auto made = open();
  std::string value(max_register_bytes - 1, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7);
  const std::string id(max_request_id_bytes, '\xff');
  EXPECT_TRUE(made->swap(0, value, id).is_done);
  made.reset();
  made = open();
  EXPECT_EQ(made->read(), (RegisterState{1, value}));
  EXPECT_EQ(io_error_of([&] { (void)made->swap(1, value + "x", "2"); }),
            "a value of 65536 bytes for the register; at most 65535 are allowed");
  EXPECT_NE(io_error_of([&] { (void)made->swap(1, "x", ""); }), "none");
  EXPECT_NE(io_error_of([&] { (void)made->swap(1, "x", id + "x"); }), "none");
  EXPECT_EQ(made->read().revision, 1);
}

TEST_F(JournalRegisterTest, cut_at_every_byte_it_reopens_with_a_prefix) {
  const std::vector<size_t> ends = write_three();
  const std::string whole = bytes();
  for (size_t cut = ends.front(); cut <= whole.size(); ++cut) {
    size_t expected = ends.size() - 1;
    while (ends[expected] > cut) --expected;
    for (const size_t zeros : {0, 1, 4096}) {  // that a disk appended before it wrote the bytes
      const std::string left = whole.substr(0, cut) + std::string(zeros, '\0');
      const ReplayedJournal replayed = replay_journal(left, "f");
      EXPECT_EQ(replayed.content.state, three_states[expected]) << cut;
      EXPECT_EQ(replayed.cut_bytes, cut - ends[expected] + zeros) << cut;
    }
    if (cut % 5 != 0) continue;
    write(whole.substr(0, cut));
    auto made = open();
    EXPECT_EQ(made->read(), three_states[expected]) << cut;
    EXPECT_EQ(made->cut_bytes(), cut - ends[expected]) << cut;
    // It goes on from there.
    EXPECT_TRUE(made->swap(static_cast<int64_t>(expected), "next", "new").is_done);
    made.reset();
    EXPECT_EQ(open()->read(), (RegisterState{static_cast<int64_t>(expected) + 1, "next"}));
  }
}

TEST_F(JournalRegisterTest, without_its_snapshot_it_is_damaged) {
  const size_t begin = write_three().front();
  const std::string whole = bytes();
  for (size_t cut = 0; cut < begin; ++cut) {
    write(whole.substr(0, cut));
    EXPECT_NE(io_error_of([&] { (void)open(); }).find(journal().string() + " is damaged at byte "),
              std::string::npos)
        << cut;
  }
}

TEST_F(JournalRegisterTest, every_flipped_bit_is_found) {
  const std::vector<size_t> ends = write_three();
  const std::string whole = bytes();
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    size_t begin = 0;  // of the record, or of the file
    for (const size_t end : ends) {
      if (end <= bit / 8) begin = end;
    }
    const std::string why = io_error_of([&] { (void)replay_journal(damaged, "FILE"); });
    const size_t named = why.find("FILE is damaged at byte ");
    ASSERT_NE(named, std::string::npos) << bit << ": " << why;
    if (begin > 0) {
      EXPECT_NE(why.find("byte " + std::to_string(begin) + " of"), std::string::npos) << why;
    }
  }
}

TEST_F(JournalRegisterTest, missing_and_repeated_records_are_found) {
  const std::vector<size_t> ends = write_three();
  const std::string whole = bytes();
  const std::string begin = whole.substr(0, ends[0]);
  const std::string first = whole.substr(ends[0], ends[1] - ends[0]);
  const std::string second = whole.substr(ends[1], ends[2] - ends[1]);
  EXPECT_NE(
      io_error_of([&] { (void)replay_journal(begin + second, "f"); }).find("revision 2 follows 0"),
      std::string::npos);
  EXPECT_NE(io_error_of([&] {
              (void)replay_journal(begin + first + first, "f");
            }).find("revision 1 follows 1"),
            std::string::npos);
  const std::string snapshot_twice = begin + begin.substr(begin.find('\n') + 1);
  EXPECT_NE(io_error_of([&] { (void)replay_journal(snapshot_twice, "f"); }), "none");
  EXPECT_EQ(replay_journal(begin + first + second, "f").content.state, three_states[2]);
}

TEST_F(JournalRegisterTest, a_second_one_is_refused_while_the_first_is_there) {
  const auto first = open();
  const std::string why = io_error_of([&] { (void)open_journal_disk(folder_, 0); });
  EXPECT_NE(why.find("is locked by another launcher of this run (process " +
                     std::to_string(::getpid()) + ")"),
            std::string::npos)
      << why;
  EXPECT_TRUE(first->swap(0, "a", "1").is_done);
}

TEST_F(JournalRegisterTest, is_rewritten_when_it_is_long) {
  const std::string value(1000, 'x');
  constexpr int64_t swaps = 300;
  {
    JournalRegister made(open_journal_disk(folder_, 0), 20000);
    for (int64_t i = 0; i < swaps; ++i) {
      ASSERT_TRUE(made.swap(i, value + std::to_string(i), "id" + std::to_string(i)).is_done);
    }
  }
  EXPECT_LT(fs::file_size(journal()), 40000U);
  const auto made = open();
  EXPECT_EQ(made->read(), (RegisterState{swaps, value + std::to_string(swaps - 1)}));
  const int64_t oldest = swaps - static_cast<int64_t>(remembered_requests);
  EXPECT_EQ(made->swap(oldest, "", "id" + std::to_string(oldest)).state.revision, oldest + 1);
  EXPECT_FALSE(made->swap(oldest - 1, "", "id" + std::to_string(oldest - 1)).is_done);
}

// Files may not grow beyond a size, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(size_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(JournalRegisterTest, on_a_full_disk_a_swap_fails_and_nothing_has_changed) {
  auto made = open();
  EXPECT_TRUE(made->swap(0, "a", "1").is_done);
  const std::string before = bytes();
  {
    const FullDisk full(before.size() + 20);  // a part of the record fits
    const std::string why = io_error_of([&] { (void)made->swap(1, "b", "2"); });
    EXPECT_NE(why.find("the register was not changed: " + journal().string()), std::string::npos)
        << why;
    EXPECT_EQ(made->read(), (RegisterState{1, "a"}));
  }
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(made->swap(1, "b", "2"), (Swapped{true, {2, "b"}}));
  made.reset();
  EXPECT_EQ(open()->read(), (RegisterState{2, "b"}));
}

TEST_F(JournalRegisterTest, on_a_full_disk_it_is_not_created) {
  {
    const FullDisk full(40);
    EXPECT_NE(io_error_of([&] { (void)open(); }), "none");
  }
  EXPECT_FALSE(fs::exists(journal()));
  EXPECT_TRUE(open()->swap(0, "a", "1").is_done);
}

// A disk whose next call of one kind fails.
class FailingDisk final : public JournalDisk {
 public:
  FailingDisk(std::unique_ptr<JournalDisk> disk, const std::string& fails)
      : disk_(std::move(disk)), fails_(fails) {}
  std::string name() const override { return disk_->name(); }
  std::optional<std::string> read() override { return disk_->read(); }
  void append(size_t offset, std::string_view bytes) override {
    check("append");
    disk_->append(offset, bytes);
  }
  void truncate(size_t bytes) override {
    if (fails_ == "append") throw base::IoError("truncate failed");
    disk_->truncate(bytes);
  }
  void write_next(std::string_view bytes) override {
    check("write_next");
    disk_->write_next(bytes);
  }
  void sync(JournalFile file) override {
    check("sync");
    disk_->sync(file);
  }
  void replace() override {
    check("replace");
    disk_->replace();
  }
  void sync_folder() override {
    check("sync_folder");
    disk_->sync_folder();
  }

 private:
  void check(const std::string& call) const {
    if (fails_ == call) throw base::IoError(call + " failed");
  }
  std::unique_ptr<JournalDisk> disk_;
  const std::string& fails_;
};

TEST_F(JournalRegisterTest, after_a_failure_that_leaves_the_disk_unknown_it_stops) {
  for (const std::string call : {"append", "sync"}) {
    std::string fails;
    JournalRegister made(std::make_unique<FailingDisk>(open_journal_disk(folder_, 0), fails));
    const RegisterState before = made.read();
    fails = call;
    EXPECT_NE(io_error_of([&] { (void)made.swap(before.revision, "x", call); }), "none");
    fails.clear();
    EXPECT_NE(io_error_of([&] { (void)made.read(); }).find("has stopped after a failure"),
              std::string::npos);
    EXPECT_NE(io_error_of([&] { (void)made.swap(before.revision, "x", call); }), "none");
  }
  EXPECT_LE(open()->read().revision, 1);
}

TEST_F(JournalRegisterTest, a_failure_to_rewrite_loses_nothing) {
  for (const std::string call : {"write_next", "replace", "sync_folder"}) {
    int64_t revision = 0;
    std::string fails;
    {
      JournalRegister made(std::make_unique<FailingDisk>(open_journal_disk(folder_, 0), fails),
                           100);
      fails = call;
      revision = made.read().revision;
      // The swap that makes the journal long is done in any case.
      EXPECT_TRUE(made.swap(revision, std::string(200, 'x'), call).is_done);
      const bool has_stopped = io_error_of([&] { (void)made.read(); }) != "none";
      EXPECT_EQ(has_stopped, call == "sync_folder");
    }
    EXPECT_EQ(open()->read(), (RegisterState{revision + 1, std::string(200, 'x')}));
  }
}

}  // namespace
}  // namespace trireme::comm
