// SPDX-License-Identifier: Apache-2.0
#include "base/system/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <vector>

namespace trireme::base {
namespace {

namespace fs = std::filesystem;

class RegularFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme_regular_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path file(const std::string& text) const {
    std::ofstream(folder_ / "file", std::ios::binary) << text;
    return folder_ / "file";
  }
  LinesRead lines(const fs::path& path, const LineLimits& limits = {}) {
    found_.clear();
    return read_lines(path, limits, [&](std::string_view line) { found_.emplace_back(line); });
  }

  fs::path folder_;
  std::vector<std::string> found_;
};

TEST_F(RegularFileTest, complete_lines_are_read) {
  EXPECT_EQ(lines(file("one\n\ntwo\nthree")).problem, "");
  EXPECT_EQ(found_, (std::vector<std::string>{"one", "", "two"}));
  EXPECT_EQ(lines(file("")).problem, "");
  EXPECT_TRUE(found_.empty());
}

TEST_F(RegularFileTest, lines_that_parts_of_a_file_divide_are_read_whole) {
  std::string text;
  std::vector<std::string> expected;
  for (size_t i = 0; text.size() < (size_t{9} << 20); ++i) {
    expected.push_back(std::string(i * 7919 % 100000, static_cast<char>('a' + i % 26)));
    text += expected.back() + "\n";
  }
  EXPECT_EQ(lines(file(text), {.max_line_bytes = 100000}).too_long, 0);
  EXPECT_TRUE(found_ == expected);
}

TEST_F(RegularFileTest, longer_lines_are_left_out_and_counted) {
  const std::string text = "1234\n12345\n123456\n" + std::string(6 << 20, 'x') + "\nend\n";
  EXPECT_EQ(lines(file(text), {.max_line_bytes = 5}).too_long, 2);
  EXPECT_EQ(found_, (std::vector<std::string>{"1234", "12345", "end"}));
}

TEST_F(RegularFileTest, a_line_without_an_end_costs_a_bounded_time) {
  const fs::path path = file("first\n");
  fs::resize_file(path, uintmax_t{40} << 30);  // sparse
  const LinesRead read = lines(path);
  EXPECT_EQ(read.too_long, 1);
  EXPECT_NE(read.problem.find("is read in part"), std::string::npos) << read.problem;
  EXPECT_EQ(found_, (std::vector<std::string>{"first"}));
  EXPECT_EQ(read_regular_file(path, 1000).reason(), "has 42949672960 bytes; at most 1000 are read");
}

TEST_F(RegularFileTest, only_regular_files_are_read) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / "zeros");
  fs::create_symlink(file("text\n"), folder_ / "link");
  for (const fs::path& path : {folder_ / "pipe", folder_ / "zeros", folder_}) {
    EXPECT_EQ(lines(path).problem, "is no regular file") << path;
    EXPECT_EQ(read_regular_file(path, 10).reason(), "is no regular file") << path;
  }
  EXPECT_EQ(read_regular_file(folder_ / "link", 10).value(), "text\n");
  EXPECT_TRUE(lines(folder_ / "gone").is_missing);
  EXPECT_EQ(read_regular_file(folder_ / "gone", 10).reason(), "is missing");
}

}  // namespace
}  // namespace trireme::base
