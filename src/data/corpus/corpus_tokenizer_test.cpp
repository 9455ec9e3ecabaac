// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/corpus_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/files_test.h"
#include "text/train/train_bpe.h"

namespace trireme::data {
namespace {

class CorpusTokenizerTest : public FilesTest {
 protected:
  // 300 ids at most; 0 is <|end|>, 1 is <|pad|>.
  std::shared_ptr<const text::Tokenizer> tokenizer() const {
    const std::string_view sample = "the words of the text and the words of the title";
    write("tokenizer.json",
          text::train_bpe(std::span(&sample, 1), {.vocab_size = 300,
                                                  .min_frequency = 2,
                                                  .special_tokens = {"<|end|>", "<|pad|>"},
                                                  .pattern = text::KnownPattern::gpt2}));
    return text::open_tokenizer(path("tokenizer.json"));
  }
};

TEST_F(CorpusTokenizerTest, special_tokens_are_chosen_by_default_id_or_name) {
  EXPECT_TRUE(says(message_of<base::ConfigError>([&] { (void)corpus_tokenizer(tokenizer(), {}); }),
                   {"tokenizer.json", "does not name its end-of-text token", "0 '<|end|>'",
                    "1 '<|pad|>'", "--eod"}));
  write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  const CorpusTokenizer by_default = corpus_tokenizer(tokenizer(), {});
  EXPECT_EQ(by_default.end_of_document, 0);
  EXPECT_EQ(by_default.begin_of_document, -1);
  EXPECT_EQ(by_default.vocab, tokenizer()->vocab_size());
  EXPECT_EQ(by_default.fingerprint, tokenizer()->fingerprint());
  EXPECT_EQ(by_default.files.size(), 2U);
  const CorpusTokenizer named = corpus_tokenizer(tokenizer(), {.begin = "<|pad|>", .end = "7"});
  EXPECT_EQ(named.begin_of_document, 1);
  EXPECT_EQ(named.end_of_document, 7);
  for (const char* none : {"-1", "none"}) {
    EXPECT_EQ(corpus_tokenizer(tokenizer(), {.end = none}).end_of_document, -1);
  }
  for (const char* bad : {"-2", "300000", "<|gone|>", "7x"}) {
    EXPECT_TRUE(says(
        message_of<base::ConfigError>([&] { (void)corpus_tokenizer(tokenizer(), {.end = bad}); }),
        {"--eod", bad, "<|end|>"}));
  }
}

TEST_F(CorpusTokenizerTest, documents_become_the_ids_of_the_tokenizer) {
  const auto text_tokenizer = tokenizer();
  CorpusOptions o;
  o.inputs = {write("a.txt", "the words").string(), write("b.txt", "of the title").string()};
  o.output = path("out");
  o.workers = 2;
  o.tokenizer = corpus_tokenizer(text_tokenizer, {.end = "<|end|>"});
  build_corpus(o);
  std::vector<int32_t> expected;
  for (const char* text : {"the words", "of the title"}) {
    const auto ids = text_tokenizer->encode(text);
    EXPECT_LT(ids.size(), std::string_view(text).size());
    expected.insert(expected.end(), ids.begin(), ids.end());
    expected.push_back(0);
  }
  EXPECT_EQ(all_tokens(*open_tokens(path("out"), {})), expected);
  EXPECT_EQ(text::open_tokenizer(path("out.tokenizer"))->fingerprint(),
            text_tokenizer->fingerprint());
}

TEST_F(CorpusTokenizerTest, bytes_have_ids_only) {
  EXPECT_EQ(byte_tokenizer({}).end_of_document, 0);
  EXPECT_EQ(byte_tokenizer({.end = "256"}).end_of_document, 256);
  EXPECT_EQ(byte_tokenizer({.end = "-1"}).end_of_document, -1);
  EXPECT_EQ(byte_tokenizer({.begin = "257"}).begin_of_document, 257);
  for (const char* bad : {"-2", "</s>", "99999999"}) {
    EXPECT_TRUE(says(message_of<base::ConfigError>([&] { (void)byte_tokenizer({.end = bad}); }),
                     {"--eod", bad, "256 adds a token"}));
  }
}

}  // namespace
}  // namespace trireme::data
