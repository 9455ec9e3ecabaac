// SPDX-License-Identifier: Apache-2.0
#include "agent/notice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/error.h"

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;

class NoticeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "notice_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Looks a hundred times a second, so that tests are short.
  NoticeOptions options() const {
    return {.file_seconds = 0.01, .command_seconds = 0.02, .timeout_seconds = 60, .stops = false};
  }
  static void write(const fs::path& file, std::string_view text) {
    std::ofstream(file, std::ios::binary) << text;
  }
  NoticeWatch watch(NoticeOptions options) {
    return NoticeWatch(std::move(options),
                       [this](const Notice& notice) { got_.set_value(notice); });
  }
  // Waits for the notice, as long as the test may take.
  Notice wait() { return got_.get_future().get(); }

  fs::path folder_;
  std::promise<Notice> got_;  // a second notice would throw in the watch's thread
};

TEST_F(NoticeTest, a_file_that_appears_is_a_notice) {
  NoticeOptions asked = options();
  asked.file = folder_ / "notice";
  const NoticeWatch watched = watch(asked);
  write(asked.file, "");
  const Notice notice = wait();
  EXPECT_EQ(notice.source, "file");
  EXPECT_EQ(notice.what, asked.file);
  EXPECT_GT(notice.time, 0);
  EXPECT_EQ(text_of(notice), fmt::format("the notice file {} has appeared or changed", asked.file));
}

TEST_F(NoticeTest, a_file_from_before_is_a_notice_when_its_time_changes) {
  NoticeOptions asked = options();
  asked.file = folder_ / "notice";
  // The command counts its runs: the file has been looked at between two of them.
  const fs::path runs = folder_ / "runs";
  asked.command = fmt::format("echo x >> {}; exit 1", runs.string());
  write(asked.file, "old");
  const NoticeWatch watched = watch(asked);
  while (fs::file_size(runs) < 10) ::usleep(1000);
  std::future<Notice> future = got_.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  fs::last_write_time(asked.file, fs::last_write_time(asked.file) + std::chrono::seconds(1));
  EXPECT_EQ(future.get().source, "file");
}

TEST_F(NoticeTest, a_command_that_ends_well_is_a_notice) {
  NoticeOptions asked = options();
  asked.command = fmt::format("test -e {}", (folder_ / "notice").string());
  const NoticeWatch watched = watch(asked);
  write(folder_ / "notice", "");
  const Notice notice = wait();
  EXPECT_EQ(notice.source, "command");
  EXPECT_EQ(notice.what, asked.command);
}

TEST_F(NoticeTest, a_notice_may_be_there_at_the_start) {
  NoticeOptions asked = options();
  asked.command = "true";
  const NoticeWatch watched = watch(asked);
  EXPECT_EQ(wait().source, "command");
}

TEST_F(NoticeTest, a_command_that_does_not_end_is_no_notice) {
  NoticeOptions asked = options();
  asked.timeout_seconds = 0.05;
  const fs::path second = folder_ / "second";
  // The first run hangs; later ones end well as soon as the file is there.
  asked.command = fmt::format("test -e {0} && exit 0; touch {0}; sleep 1000", second.string());
  const NoticeWatch watched = watch(asked);
  EXPECT_TRUE(fs::exists(second));
  EXPECT_EQ(wait().source, "command");
}

TEST_F(NoticeTest, a_command_that_cannot_be_started_is_refused) {
  for (const std::string command : {"no_such_program_of_this_test --now", "/dev/null"}) {
    NoticeOptions asked = options();
    asked.command = command;
    std::string refusal;
    try {
      const NoticeWatch watched = watch(asked);
    } catch (const base::ConfigError& error) {
      refusal = error.what();
    }
    EXPECT_NE(refusal.find("elastic.notice_command = \"" + command + "\""), std::string::npos)
        << refusal;
  }
}

TEST_F(NoticeTest, ends_while_its_command_runs) {
  NoticeOptions asked = options();
  const fs::path runs = folder_ / "runs";
  asked.command =
      fmt::format("echo x >> {0}; test $(wc -l < {0}) -gt 1 && sleep 1000; exit 1", runs.string());
  {
    const NoticeWatch watched = watch(asked);
    while (fs::file_size(runs) < 4) ::usleep(1000);
  }  // the test would run into its limit of time
  EXPECT_EQ(fs::file_size(runs), 4U);
}

}  // namespace
}  // namespace trireme::agent
