// SPDX-License-Identifier: Apache-2.0
#include "data/convert_set.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text/json.h"
#include "data/corpus/corpus.h"
#include "data/files_test.h"
#include "data/mask.h"
#include "data/tokenizer_beside.h"

namespace trireme::data {
namespace {

class ConvertSetTest : public FilesTest {
 protected:
  // A data set with a mask, a tokenizer and a manifest.
  void build() {
    CorpusOptions o;
    o.inputs = {
        write("a.jsonl", "{\"p\":\"ab\",\"c\":\"x\"}\n{\"p\":\"\",\"c\":\"yz\"}\n").string()};
    o.output = path("d");
    o.documents.prompt_field = "p";
    o.documents.completion_field = "c";
    o.tokenizer.files = {write("my.json", "{}")};
    build_corpus(o);
    std::filesystem::remove(path("a.jsonl"));
    std::filesystem::remove(path("my.json"));
  }
};

TEST_F(ConvertSetTest, what_lies_beside_the_data_comes_along_through_all_formats) {
  build();
  const auto expected = all_tokens(*open_tokens(path("d"), {}));
  const auto expected_mask = all_tokens(*open_tokens(path("d.mask"), {}));
  std::filesystem::path from = path("d.idx");
  OpenOptions open;
  for (const TokenFormat format :
       {TokenFormat::llmc, TokenFormat::nanogpt, TokenFormat::megatron}) {
    const std::filesystem::path to = path("to_" + std::string(name_of(format)));
    const ConvertedSet set = convert_set({.from = from, .open = open, .to = to, .format = format});
    EXPECT_TRUE(set.has_mask && set.has_tokenizer && set.has_manifest);
    EXPECT_EQ(set.report.loses_borders, format == TokenFormat::llmc);
    EXPECT_EQ(set.report.vocab, 256);  // of the tokenizer: the largest token is 'z'
    from = to;
    open = {.end_of_document = 0};
    const auto data = open_tokens(from, open);
    EXPECT_EQ(all_tokens(*data), expected);
    EXPECT_EQ(all_tokens(*open_mask(from, *data)), expected_mask);
    EXPECT_TRUE(std::filesystem::exists(*tokenizer_beside(from) / "tokenizer.json"));
    const base::Json manifest = *manifest_beside(from);
    EXPECT_EQ(manifest["options"]["format"], std::string(name_of(format)));
    EXPECT_EQ(manifest["tokenizer"]["folder"], to.filename().string() + ".tokenizer");
    EXPECT_TRUE(manifest.contains("converted_from"));
  }
  EXPECT_EQ(read("to_megatron.bin"), read("d.bin"));
  EXPECT_EQ(read("to_megatron.idx"), read("d.idx"));
  for (const std::string& name : names()) EXPECT_FALSE(name.ends_with(".build")) << name;
}

TEST_F(ConvertSetTest, a_set_that_is_replaced_leaves_nothing_behind) {
  build();
  write("plain.bin", raw_array<uint16_t>({1, 2, 3}));
  convert_set({.from = path("plain.bin"), .open = {.type = "u16"}, .to = path("d")});
  EXPECT_TRUE(holds(names(), {"d.bin", "d.idx", "plain.bin"}));
  EXPECT_TRUE(holds(all_tokens(*open_tokens(path("d"), {})), {1, 2, 3}));
}

TEST_F(ConvertSetTest, documents_and_the_set_itself_are_refused) {
  build();
  const auto before = names();
  write("t.txt", "x");
  EXPECT_TRUE(says(message_of<base::ConfigError>(
                       [&] { convert_set({.from = path("t.txt"), .to = path("out")}); }),
                   {"t.txt: data convert rewrites tokens", "trireme data build"}));
  std::filesystem::remove(path("t.txt"));
  for (const TokenFormat format : {TokenFormat::megatron, TokenFormat::llmc}) {
    EXPECT_TRUE(says(message_of<base::ConfigError>([&] {
                       convert_set({.from = path("d"), .to = path("d.bin"), .format = format});
                     }),
                     {"d.bin: is read and would be replaced"}));
  }
  EXPECT_TRUE(says(message_of<base::ConfigError>(
                       [&] { convert_set({.from = path("d"), .to = path("out"), .type = "u32"}); }),
                   {"cannot be stored as u32"}));
  EXPECT_THROW(convert_set({.from = path("gone"), .to = path("out")}), base::ConfigError);
  EXPECT_EQ(names(), before);
}

}  // namespace
}  // namespace trireme::data
