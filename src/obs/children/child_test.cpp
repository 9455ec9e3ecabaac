// SPDX-License-Identifier: Apache-2.0
// Commands that a run starts: they receive what it writes, and can neither delay nor end it.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "obs/children/command_stream.h"
#include "obs/scratch_folder_test.h"

namespace trireme::obs {
namespace {

std::string numbered_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i) + "\n";
  return text;
}

TEST(CommandStream, passes_all_lines_on_in_order) {
  const ScratchFolder folder;
  const std::string file = (folder / "copy").string();
  const std::string lines = numbered_lines(20'000);
  CommandStream stream("cat > " + file, {});
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin) + 1;
    stream.add(std::string_view(lines).substr(begin, end - begin));
    begin = end;
  }
  stream.finish();
  EXPECT_EQ(stream.dropped(), 0);
  EXPECT_EQ(content_of(file), lines);
  EXPECT_FALSE(stream.news());
}

TEST(CommandStream, a_command_that_never_reads_drops_whole_lines_and_is_killed) {
  CommandStream stream("sleep 1000", {.max_bytes = 10'000, .grace_seconds = 0.01});
  int64_t lines = 0;
  for (; lines < 1'000'000 && stream.dropped() < 100; ++lines) stream.add("0123456789\n");
  EXPECT_EQ(stream.dropped(), 100);
  ASSERT_TRUE(stream.news());
  EXPECT_FALSE(stream.news()) << "reported once";
  stream.finish();
  EXPECT_GT(stream.dropped(), 100) << "lines that waited were lost, too";
  EXPECT_LE(stream.dropped(), lines);
}

TEST(CommandStream, a_command_that_stops_reading_is_not_waited_for) {
  CommandStream stream("read line; exec sleep 1000",
                       {.grace_seconds = 5, .stall_seconds = 0, .start_seconds = 0});
  stream.add("read\n");
  for (int i = 0; i < 5; ++i) stream.add("not read\n");
  stream.finish();
  EXPECT_GE(stream.dropped(), 5);
}

TEST(CommandStream, a_command_that_reads_slowly_is_waited_for) {
  const ScratchFolder folder;
  const std::string file = (folder / "copy").string();
  CommandStream stream("sleep 0.05; cat > " + file, {.stall_seconds = 0});
  stream.add("a\nb\n");
  stream.finish();
  EXPECT_EQ(stream.dropped(), 0);
  EXPECT_EQ(content_of(file), "a\nb\n");
}

TEST(CommandStream, a_command_that_ends_at_once_is_reported_once) {
  CommandStream stream("exit 3", {.grace_seconds = 0.1});
  std::optional<std::string> news;
  for (int i = 0; i < 1000 && !news; ++i) {
    stream.add("line\n");
    news = stream.news();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(news);
  EXPECT_NE(news->find("exit 3"), std::string::npos) << *news;
  stream.add("line\n");
  EXPECT_FALSE(stream.news());
  EXPECT_GT(stream.dropped(), 0);
}

TEST(ChildProcess, a_missing_program_is_an_error) {
  EXPECT_THROW(ChildProcess({.words = {"no-such-program-0815"}}), base::IoError);
}

TEST(ChildProcess, reports_how_it_ended) {
  ChildProcess child({.words = shell_words("exit 7")});
  ASSERT_TRUE(child.wait(10));
  EXPECT_EQ(child.ending(), "exit code 7");
  EXPECT_FALSE(child.is_good());
}

}  // namespace
}  // namespace trireme::obs
