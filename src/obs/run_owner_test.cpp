// SPDX-License-Identifier: Apache-2.0
#include "obs/run_owner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/text/json.h"
#include "obs/run_dir.h"

namespace trireme::obs {
namespace {

namespace fs = std::filesystem;

class RunOwnerTest : public testing::Test {
 protected:
  RunOwnerTest() {
    std::string name = (fs::temp_directory_path() / "owner-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~RunOwnerTest() override { fs::remove_all(folder_); }

  // Writes a record of another process.
  void write_record(const base::Json& changes = base::Json::object()) const {
    base::Json record = {{"version", 1},     {"run", "0123456789abcdef"}, {"epoch", 7},
                         {"attempt", 3},     {"host", "elsewhere"},       {"machine", "another"},
                         {"process", 1},     {"process_start", 1},        {"since", 0.0},
                         {"released", false}};
    record.update(changes);
    write_file(folder_ / RunOwner::record_name, record.dump());
  }
  void set_age(double seconds) const {
    struct timespec now {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const struct timespec then { now.tv_sec - static_cast<time_t>(seconds), now.tv_nsec };
    const struct timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder_ / RunOwner::record_name).c_str(), times, 0), 0);
  }
  std::string refused() const {
    try {
      (void)RunOwner::hold(folder_);
    } catch (const base::IoError& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(RunOwnerTest, a_new_folder_begins_at_epoch_one_and_a_resumed_run_keeps_its_id) {
  std::string run;
  {
    const auto owner = RunOwner::hold(folder_);
    EXPECT_FALSE(owner->previous());
    owner->begin("");
    owner->begun();
    run = owner->run();
    EXPECT_EQ(run.size(), 16U);
    EXPECT_EQ(owner->epoch(), 1);
    EXPECT_FALSE(owner->is_fenced());
    EXPECT_FALSE(read_owner(folder_)->is_released);
  }
  EXPECT_TRUE(read_owner(folder_)->is_released);
  const auto owner = RunOwner::hold(folder_);
  EXPECT_EQ(owner->previous()->run, run);
  owner->begin(run);
  owner->begun();
  EXPECT_EQ(owner->run(), run);
  EXPECT_EQ(owner->epoch(), 2);
  EXPECT_EQ(owner->attempt(), 2);
}

TEST_F(RunOwnerTest, a_hold_that_does_not_begin_changes_nothing) {
  { RunOwner::hold(folder_)->begin(""); }
  std::map<std::string, fs::file_time_type> before;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    before[entry.path().filename()] = entry.last_write_time();
  }
  { (void)RunOwner::hold(folder_); }
  std::map<std::string, fs::file_time_type> after;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    after[entry.path().filename()] = entry.last_write_time();
  }
  EXPECT_EQ(before, after);
}

TEST_F(RunOwnerTest, a_run_that_does_not_begin_leaves_no_folder) {
  { (void)RunOwner::hold(folder_ / "a" / "b"); }
  EXPECT_TRUE(fs::is_empty(folder_));
  { (void)RunOwner::hold(folder_); }
  EXPECT_TRUE(fs::is_empty(folder_));
  { RunOwner::hold(folder_ / "a" / "b")->begin(""); }
  EXPECT_TRUE(fs::exists(folder_ / "a" / "b" / RunOwner::lock_name));
}

TEST_F(RunOwnerTest, a_live_holder_excludes_others_stopped_or_not) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto owner = RunOwner::hold(folder_);
    owner->begin("");
    owner->begun();
    [[maybe_unused]] const ssize_t written = ::write(ready[1], "x", 1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string holder = "process " + std::to_string(child) + " on ";
  EXPECT_NE(refused().find(holder), std::string::npos) << refused();
  ::kill(child, SIGSTOP);
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  EXPECT_NE(refused().find("stopped (SIGSTOP)"), std::string::npos) << refused();
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  EXPECT_EQ(refused(), "");
  EXPECT_EQ(RunOwner::hold(folder_)->previous()->epoch, 1);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(RunOwnerTest, a_holder_that_was_taken_over_is_fenced) {
  const auto old = RunOwner::hold(folder_);
  old->begin("");
  old->begun();
  int writes = 0;
  old->guarded([&] { ++writes; });
  EXPECT_NE(refused(), "");
  const auto young = RunOwner::hold(folder_, {.takes_over = true});
  young->begin(old->run());
  young->begun();
  EXPECT_TRUE(old->is_fenced());
  EXPECT_THROW(old->guarded([&] { ++writes; }), base::Fenced);
  EXPECT_EQ(writes, 1);
  young->guarded([&] { ++writes; });
  EXPECT_EQ(writes, 2);
}

TEST_F(RunOwnerTest, a_take_over_waits_until_the_first_files_are_written) {
  const auto old = RunOwner::hold(folder_);
  old->begin("");
  int writes = 0;
  old->guarded([&] { ++writes; });
  EXPECT_THROW((void)RunOwner::hold(folder_, {.takes_over = true, .wait_seconds = 0.05}),
               base::IoError);
  EXPECT_EQ(writes, 1);
  old->begun();
  EXPECT_NO_THROW((void)RunOwner::hold(folder_, {.takes_over = true, .wait_seconds = 0.05}));
}

TEST_F(RunOwnerTest, a_fenced_holder_that_ends_does_not_release_the_folder) {
  auto old = RunOwner::hold(folder_);
  old->begin("");
  old->begun();
  const auto young = RunOwner::hold(folder_, {.takes_over = true});
  young->begin(old->run());
  young->begun();
  old.reset();
  EXPECT_FALSE(read_owner(folder_)->is_released);
  EXPECT_EQ(read_owner(folder_)->epoch, 2);
  EXPECT_NE(refused(), "");
}

TEST_F(RunOwnerTest, a_lease_on_another_host_lasts_sixty_seconds) {
  write_record();
  EXPECT_NE(refused().find("process 1 on elsewhere"), std::string::npos) << refused();
  set_age(50);
  EXPECT_NE(refused(), "");
  set_age(70);
  EXPECT_EQ(refused(), "");
  write_record({{"released", true}});
  EXPECT_EQ(refused(), "");
}

TEST_F(RunOwnerTest, a_lease_is_renewed) {
  const auto owner = RunOwner::hold(folder_, {.renew_seconds = 0.01});
  owner->begin("");
  owner->begun();
  set_age(70);
  const auto age = [this] {
    return fs::file_time_type::clock::now() - fs::last_write_time(folder_ / RunOwner::record_name);
  };
  for (int i = 0; i < 1000 && age() > std::chrono::seconds(30); ++i) ::usleep(10'000);
  EXPECT_LT(age(), std::chrono::seconds(30));
}

TEST_F(RunOwnerTest, a_damaged_record_is_named) {
  write_file(folder_ / RunOwner::record_name, "{\"run\": 3");
  EXPECT_NE(refused().find("owner.json: damaged"), std::string::npos) << refused();
}

}  // namespace
}  // namespace trireme::obs
