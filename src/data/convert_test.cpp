// SPDX-License-Identifier: Apache-2.0
#include "data/convert.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/files/content.h"
#include "data/files/token_writer.h"
#include "data/files_test.h"

namespace trireme::data {
namespace {

class ConvertTest : public FilesTest {
 protected:
  void write_documents(const std::vector<std::vector<int32_t>>& documents, int64_t vocab) {
    const auto writer = write_tokens(path("from"), {.vocab = vocab});
    for (const auto& document : documents) {
      writer->write(document);
      writer->end_document();
    }
    writer->finish();
  }
};

TEST_F(ConvertTest, every_format_converts_to_every_other_and_back) {
  for (const int32_t largest : {255, 65535, 70000}) {
    write_documents({{1, 2, 0}, {3, 0}, {largest, 5, 6, 0}}, largest + 1);
    const std::string bin = read("from.bin"), index = read("from.idx");
    const ContentId id = content_id(*open_tokens(path("from"), {}));
    for (const TokenFormat format :
         {TokenFormat::megatron, TokenFormat::llmc, TokenFormat::nanogpt}) {
      const ConvertReport there =
          convert_tokens({.from = path("from"), .to = path("to"), .format = format});
      EXPECT_EQ(there.tokens, 9);
      EXPECT_EQ(there.vocab, largest + 1);
      EXPECT_EQ(there.loses_borders, format != TokenFormat::megatron);
      OpenOptions open{.format = format, .type = "", .end_of_document = 0};
      if (format == TokenFormat::nanogpt) open.type = std::string(name_of(there.type));
      EXPECT_EQ(content_id(*open_tokens(path("to.bin"), open)), id);
      const ConvertReport back =
          convert_tokens({.from = path("to.bin"), .open = open, .to = path("back")});
      EXPECT_EQ(back.documents, 3);
      EXPECT_EQ(read("back.bin"), bin);
      EXPECT_EQ(read("back.idx"), index);
      std::filesystem::remove(path("to.idx"));
    }
  }
}

TEST_F(ConvertTest, the_type_can_be_chosen) {
  write_documents({{1, 2}}, 10);
  convert_tokens(
      {.from = path("from"), .to = path("to"), .format = TokenFormat::nanogpt, .type = "u32"});
  EXPECT_EQ(read("to.bin"), raw_array<uint32_t>({1, 2}));
  EXPECT_EQ(convert_tokens({.from = path("from"), .to = path("to"), .type = "i32"}).type,
            TokenType::i32);
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                     convert_tokens({.from = path("from"), .to = path("to"), .type = "u32"});
                   }),
                   {"megatron tokens below 3 cannot be stored as u32", "u16", "i32"}));
}

TEST_F(ConvertTest, what_cannot_be_converted_is_refused) {
  write_documents({{1, 2}}, 10);
  EXPECT_TRUE(says(message_of<base::ConfigError>(
                       [&] { convert_tokens({.from = path("from"), .to = path("from")}); }),
                   {"is read and would be replaced"}));
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                     convert_tokens({.from = path("from"), .to = path("to"), .vocab = 2});
                   }),
                   {"token 2", "not below the vocabulary of 2"}));
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                     convert_tokens(
                         {.from = path("from"), .to = path("to"), .format = TokenFormat::text});
                   }),
                   {"text is not written"}));
  EXPECT_TRUE(says(message_of<base::ConfigError>(
                       [&] { convert_tokens({.from = path("none.bin"), .to = path("to")}); }),
                   {"none.bin"}));
  EXPECT_TRUE(holds(names(), {"from.bin", "from.idx"}));
}

}  // namespace
}  // namespace trireme::data
