// SPDX-License-Identifier: Apache-2.0
#include "data/readers/tar.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/archives_test.h"

namespace trireme::data {
namespace {

class TarTest : public FilesTest {
 protected:
  // Returns the members as "name=content".
  std::vector<std::string> members(const std::string& bytes, bool skips_content = false) {
    ShardStream stream(write("a.tar", bytes));
    TarReader reader(stream);
    std::vector<std::string> found;
    while (reader.next()) {
      std::string text;
      if (!skips_content) reader.read(text);
      found.push_back(reader.name() + "=" + text);
    }
    return found;
  }
  std::string refusal(const std::string& bytes) {
    return message_of<base::IoError>([&] { members(bytes); });
  }
};

std::string pax(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

TEST_F(TarTest, members_of_all_dialects_are_read) {
  const std::string long_name = std::string(150, 'd') + "/file.txt";
  const std::string big(1500, 'x');
  const std::string archive =
      tar_member("a.txt", "one") + tar_member("folder/", "", '5') + tar_member("link", "", '2') +
      tar_member("empty.txt", "") + tar_member("././@LongLink", long_name + '\0', 'L') +
      tar_member("cut", big) +
      tar_member("pax", pax("mtime", "1.5") + pax("path", "b\xc3\xa9.txt"), 'x') +
      tar_member("ascii", "two", '\0') + tar_member("global", pax("path", "no"), 'g') +
      tar_header("name", 3, '0', {{345, "prefix"}}) + tar_padded("six") +
      // A size in binary, and one that only pax has.
      tar_header("binary", 0, '0', {{124, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x02", 12)}}) +
      tar_padded("22") + tar_member("pax", pax("size", "5"), 'x') + tar_header("huge", 0) +
      tar_padded("12345") + tar_end;
  EXPECT_EQ(members(archive),
            (std::vector<std::string>{"a.txt=one", "empty.txt=", long_name + "=" + big,
                                      "b\xc3\xa9.txt=two", "prefix/name=six", "binary=22",
                                      "huge=12345"}));
  EXPECT_EQ(members(archive, true).size(), 7U);
  EXPECT_TRUE(members(tar_end).empty());
  EXPECT_EQ(members(tar_member("a", "b") + std::string(512, '\0')).size(), 1U);
}

TEST_F(TarTest, damaged_archives_are_refused_with_the_offset) {
  const std::string good = tar_member("a.txt", "one") + tar_member("b.txt", std::string(600, 'b'));
  EXPECT_TRUE(says(refusal(good), {"a.tar: truncated: no tar header", "at byte 2560"}));
  EXPECT_TRUE(says(refusal(""), {"truncated", "at byte 0"}));
  EXPECT_TRUE(says(refusal(good.substr(0, 700)), {"truncated inside the member a.txt"}));
  EXPECT_TRUE(says(refusal(good.substr(0, 1600)), {"truncated inside the member b.txt"}));
  const std::string forged = tar_member("a\033[2J\nerror: b", std::string(600, 'b'));
  EXPECT_TRUE(says(refusal(forged.substr(0, 700)), {"the member a\\x1b[2J\\nerror: b"}));
  EXPECT_TRUE(says(refusal(good.substr(0, 1300)), {"truncated", "at byte 1024"}));
  std::string bad = good;
  bad[1024 + 5] ^= 1;
  EXPECT_TRUE(says(refusal(bad), {"tar header at byte 1024: the checksum is wrong"}));
  EXPECT_TRUE(says(refusal(std::string(2048, 'x')), {"byte 0: the checksum is wrong"}));
  EXPECT_TRUE(
      says(refusal(tar_header("a", 0, '0', {{124, "12x45678901"}})), {"the size is not a number"}));
  EXPECT_TRUE(says(refusal(tar_header("a", 0, '0', {{124, std::string(12, '\xff')}})),
                   {"the size is not a number"}));
  EXPECT_TRUE(says(refusal(tar_member("a", "", 'S')), {"sparse"}));
  EXPECT_TRUE(says(refusal(good + tar_end + good), {"follows the end of the archive"}));
  EXPECT_TRUE(says(refusal(tar_member("p", "9 path=x", 'x') + good), {"pax header at byte 0"}));
  EXPECT_TRUE(
      says(refusal(tar_member("p", "99999999999999999999 path=x\n", 'x') + good), {"malformed"}));
  EXPECT_TRUE(says(refusal(tar_member("p", pax("size", "-1"), 'x') + good), {"malformed"}));
  EXPECT_TRUE(
      says(refusal(tar_member("p", pax("GNU.sparse.major", "1"), 'x') + good), {"sparse file"}));
  EXPECT_TRUE(says(refusal(tar_header("L", 2000000, 'L')), {"extended header of 2000000 bytes"}));
}

}  // namespace
}  // namespace trireme::data
