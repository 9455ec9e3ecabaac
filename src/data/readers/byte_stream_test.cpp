// SPDX-License-Identifier: Apache-2.0
#include "data/readers/byte_stream.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/archives_test.h"

namespace trireme::data {
namespace {

class ByteStreamTest : public FilesTest {
 protected:
  // Reads in pieces of `step` bytes.
  std::string content(const std::string& name, const std::string& bytes, size_t step = 3) {
    ShardStream stream(write(name, bytes));
    std::string all, piece(step, '\0');
    while (const size_t count = stream.read(std::as_writable_bytes(std::span(piece)))) {
      all += piece.substr(0, count);
    }
    EXPECT_EQ(stream.stored_bytes(), static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(stream.offset(), static_cast<int64_t>(all.size()));
    return all;
  }
  std::string refusal(const std::string& name, const std::string& bytes) {
    return message_of<base::IoError>([&] { content(name, bytes); });
  }
};

TEST_F(ByteStreamTest, plain_and_compressed_files_give_their_content) {
  for (const size_t step : {1U, 2U, 5U, 4096U}) {
    EXPECT_EQ(content("a", "", step), "");
    EXPECT_EQ(content("a", "ab", step), "ab");
    EXPECT_EQ(content("a", "abcdefg", step), "abcdefg");
    EXPECT_EQ(content("a.gz", gzip_hello, step), "hello\n");
    EXPECT_EQ(content("a", gzip_hello + gzip_stored("two") + gzip_stored(""), step), "hello\ntwo");
    EXPECT_EQ(content("a", gzip_hello + std::string(600, '\0'), step), "hello\n");
    EXPECT_EQ(content("a.zst", zstd_hello, step), "hello\n");
    EXPECT_EQ(content("a.zst", zstd_hello + zstd_hello, step), "hello\nhello\n");
  }
}

TEST_F(ByteStreamTest, a_long_stream_passes_buffers_of_any_size) {
  std::string stored, expected;
  for (int i = 0; i < 30; ++i) {
    const std::string part(static_cast<size_t>(60000 + i), static_cast<char>('a' + i % 26));
    stored += gzip_stored(part);
    expected += part;
  }
  EXPECT_TRUE(content("a.gz", stored, 65537) == expected);
}

TEST_F(ByteStreamTest, a_file_cut_at_any_byte_is_refused) {
  for (const std::string& whole : {gzip_hello + gzip_hello, zstd_hello + zstd_hello}) {
    const bool is_gzip = whole.front() == gzip_hello.front();
    for (size_t size = 4; size < whole.size(); ++size) {
      if (size == whole.size() / 2) continue;  // a complete member
      EXPECT_TRUE(says(refusal("a", whole.substr(0, size)),
                       {"a: truncated", is_gzip ? "gzip member" : "zstd frame"}))
          << size;
    }
  }
}

TEST_F(ByteStreamTest, damaged_files_are_refused) {
  std::string bad = gzip_hello;
  bad[12] ^= 4;
  EXPECT_TRUE(says(refusal("a", bad), {"a: damaged gzip data", "at byte"}));
  bad = gzip_hello;
  bad[bad.size() - 5] ^= 1;
  EXPECT_TRUE(says(refusal("a", bad), {"incorrect data check"}));
  EXPECT_TRUE(says(refusal("a", gzip_hello + "x"), {"byte 0x78 after the end of a gzip member"}));
  EXPECT_TRUE(says(refusal("a", gzip_hello + std::string("\0\0y", 3)),
                   {"byte 0x79 after zeros that follow the last gzip member"}));
  bad = zstd_hello;
  bad.back() ^= 1;
  EXPECT_TRUE(says(refusal("a", bad), {"a: damaged zstd data"}));
  EXPECT_TRUE(says(refusal("a", zstd_hello + "xxxxxxxxx"), {"damaged zstd data"}));
  EXPECT_TRUE(says(refusal("a.gz", "plain text"), {"not the magic number of gzip"}));
  EXPECT_TRUE(says(refusal("a.zst", ""), {"begins with 0 bytes", "zstd"}));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { ShardStream stream(path("none")); }),
                   {"none: cannot be read: No such file"}));
  EXPECT_TRUE(says(message_of<base::IoError>([&] { ShardStream stream(path("")); }),
                   {"not a regular file"}));
}

TEST_F(ByteStreamTest, the_hash_is_of_the_bytes_as_stored) {
  ShardStream plain(write("a", "hello\n")), compressed(write("b", gzip_hello));
  plain.drain();
  compressed.drain();
  EXPECT_EQ(plain.hash().size(), 32U);
  EXPECT_NE(plain.hash(), compressed.hash());
  EXPECT_EQ(compressed.compression(), Compression::gzip);
  ShardStream again(write("c", "hello\n"));
  again.drain();
  EXPECT_EQ(plain.hash(), again.hash());
}

}  // namespace
}  // namespace trireme::data
