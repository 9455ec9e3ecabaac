// SPDX-License-Identifier: Apache-2.0
#include "data/train_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/files_test.h"
#include "text/tokenizer.h"

namespace trireme::data {
namespace {

class TrainTokenizerTest : public FilesTest {
 protected:
  TokenizerTrainingOptions options(const std::string& lines) {
    TokenizerTrainingOptions o;
    o.inputs = {write("a.jsonl", lines).string()};
    o.bpe = {.vocab_size = 300, .special_tokens = {"<|end|>"}};
    return o;
  }
  static std::string many_lines() {
    std::string lines;
    for (int i = 0; i < 60000; ++i) {
      lines += "{\"text\":\"the " + std::to_string(i * 7919 % 1000) + " words of a text\"}\n";
    }
    return lines;
  }
};

TEST_F(TrainTokenizerTest, the_result_does_not_depend_on_workers_and_is_that_of_one_trainer) {
  TokenizerTrainingOptions o = options(many_lines() + "bad\n");
  std::string expected;
  for (const int workers : {1, 2, 3}) {
    o.workers = workers;
    int32_t last_tokens = 0;
    int64_t last_bytes = 0;
    o.progress = [&](const TokenizerTrainingProgress& p) {
      EXPECT_GE(p.tokens, last_tokens);
      EXPECT_GE(p.bytes_done, last_bytes);
      last_tokens = p.tokens;
      last_bytes = p.bytes_done;
    };
    const TokenizerTraining trained = train_tokenizer(o);
    EXPECT_EQ(last_tokens, 300);
    EXPECT_EQ(trained.documents, 60000);
    EXPECT_EQ(trained.rejected, 1);
    EXPECT_TRUE(says(trained.first_rejected, {"a.jsonl", "json_error"}));
    if (workers == 1) expected = trained.json;
    EXPECT_TRUE(trained.json == expected) << workers;
  }
  text::BpeTrainer single(o.bpe);
  for (int i = 0; i < 60000; ++i) {
    single.add("the " + std::to_string(i * 7919 % 1000) + " words of a text");
  }
  EXPECT_TRUE(single.train() == expected);
  const auto tokenizer = text::open_tokenizer(write("tokenizer.json", expected));
  EXPECT_EQ(tokenizer->vocab_size(), 300);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the words of \xc3\xa9")), "the words of \xc3\xa9");
}

TEST_F(TrainTokenizerTest, max_bytes_ends_the_reading) {
  TokenizerTrainingOptions o = options(many_lines());
  o.max_bytes = 1;  // one block
  const TokenizerTraining part = train_tokenizer(o);
  EXPECT_GT(part.documents, 0);
  EXPECT_LT(part.documents, 60000);
  o.workers = 3;
  EXPECT_EQ(train_tokenizer(o).documents, part.documents);
}

TEST_F(TrainTokenizerTest, bad_options_and_inputs_are_refused) {
  TokenizerTrainingOptions o = options("{\"other\":\"x\"}\n");
  EXPECT_TRUE(says(message_of<base::IoError>([&] { train_tokenizer(o); }),
                   {"no text to train", "1 rejected", "no field \"text\"", "found: other"}));
  o.bpe.vocab_size = 100;
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { train_tokenizer(o); }),
                   {"a vocabulary of 100 tokens is too small", "257"}));
  o.bpe.vocab_size = 300;
  o.workers = 0;
  EXPECT_THROW(train_tokenizer(o), base::ConfigError);
  o.workers = 1;
  o.inputs = {write("d.bin", "xxxx").string()};
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { train_tokenizer(o); }),
                   {"d.bin: holds tokens; a tokenizer is trained on text"}));
}

}  // namespace
}  // namespace trireme::data
