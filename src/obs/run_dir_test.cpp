// SPDX-License-Identifier: Apache-2.0
#include "obs/run_dir.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>

#include "base/error.h"
#include "obs/output_file.h"
#include "obs/scratch_folder_test.h"

namespace trireme::obs {
namespace {

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::IoError& error) {
    return error.what();
  }
  return "";
}

TEST(WriteFile, replaces_the_file_and_leaves_no_temporary_file) {
  const ScratchFolder folder;
  write_file(folder / "a", "one");
  write_file(folder / "a", "two");
  EXPECT_EQ(content_of(folder / "a"), "two");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(WriteFile, a_full_disk_leaves_the_old_file) {
  const ScratchFolder folder;
  write_file(folder / "a", "old");
  // A limit on the size of files makes a write fail half-way, as a full disk does.
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = refusal([&] { write_file(folder / "a", std::string(1000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(message.find("cannot be written"), std::string::npos) << message;
  EXPECT_EQ(content_of(folder / "a"), "old");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(WriteFile, a_missing_folder_is_named) {
  const ScratchFolder folder;
  const std::string message = refusal([&] { write_file(folder / "none" / "a", "x"); });
  EXPECT_NE(message.find("none"), std::string::npos) << message;
  std::filesystem::create_directories(folder / "d" / "e");
  EXPECT_NE(refusal([&] { write_file(folder / "d", "x"); }).find("/d: cannot be written"),
            std::string::npos);
  EXPECT_EQ(folder.entries(), 1);
}

TEST(RunDirTest, a_fresh_run_needs_a_directory_without_a_run) {
  const ScratchFolder folder;
  const RunDir run = RunDir::open(folder / "a" / "b", RunMode::fresh);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a" / "b"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "a" / "b")) << "the probe stayed behind";
  RunDir::open(folder / "a" / "b", RunMode::fresh);
  write_file(run.config(), "{}");
  const std::string message = refusal([&] { RunDir::open(run.path(), RunMode::fresh); });
  EXPECT_NE(message.find("already holds a run"), std::string::npos) << message;
}

TEST(RunDirTest, overwrite_removes_logs_and_nothing_else) {
  const ScratchFolder folder;
  const RunDir run = RunDir::open(folder / "a", RunMode::fresh);
  std::filesystem::create_directories(run.events());
  write_file(run.config(), "{}");
  write_file(run.metrics(), "{}");
  write_file(run.events() / "events.out.tfevents.1.host.2.0", "x");
  write_file(run.events() / "mine.txt", "x");
  write_file(run.path() / "notes.txt", "x");
  RunDir::open(folder / "a", RunMode::overwrite);
  EXPECT_FALSE(holds_run(folder / "a"));
  EXPECT_FALSE(std::filesystem::exists(run.events() / "events.out.tfevents.1.host.2.0"));
  EXPECT_TRUE(std::filesystem::exists(run.events() / "mine.txt"));
  EXPECT_TRUE(std::filesystem::exists(run.path() / "notes.txt"));
}

TEST(RunDirTest, resume_needs_a_run_and_keeps_it) {
  const ScratchFolder folder;
  const std::string message = refusal([&] { RunDir::open(folder / "a", RunMode::resume); });
  EXPECT_NE(message.find("holds no run to resume"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  const RunDir run = RunDir::open(folder / "a", RunMode::fresh);
  write_file(run.metrics(), "{}");
  RunDir::open(folder / "a", RunMode::resume);
  EXPECT_EQ(content_of(run.metrics()), "{}");
}

TEST(RunDirTest, a_path_that_cannot_be_a_directory_is_refused) {
  const ScratchFolder folder;
  write_file(folder / "file", "x");
  EXPECT_NE(refusal([&] { RunDir::open(folder / "file", RunMode::fresh); }).find("this is a file"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              RunDir::open(folder / "file" / "below", RunMode::overwrite);
            }).find("cannot be created"),
            std::string::npos);
  EXPECT_EQ(content_of(folder / "file"), "x");
}

TEST(RunDirTest, an_unwritable_directory_is_refused) {
  // The superuser may write in any file system that allows it; /proc does not.
  if (!std::filesystem::is_directory("/proc/self")) GTEST_SKIP();
  const std::string message = refusal([] { RunDir::open("/proc/self", RunMode::fresh); });
  EXPECT_NE(message.find("/proc/self: the run directory cannot be written"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace trireme::obs
