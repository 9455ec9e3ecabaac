// SPDX-License-Identifier: Apache-2.0
// Ids and text equal those of Hugging Face `tokenizers` for every golden text and tokenizer.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include "base/sha256.h"
#include "tests/golden/tokenizer_files.h"

namespace trireme::golden {
namespace {

using Json = nlohmann::json;

struct Answers {
  std::vector<int32_t> ids, plain;
  std::string decoded, decoded_all;
};

Answers answers_of(const text::Tokenizer& tokenizer, const std::string& text) {
  Answers made;
  made.ids = tokenizer.encode(text);
  made.plain = tokenizer.encode(text, {.add_special = false});
  made.decoded = tokenizer.decode(made.ids);
  made.decoded_all = tokenizer.decode(made.ids, {.skip_special = false});
  return made;
}

std::string hash_of(const Answers& made) {
  const std::string all =
      Json::array({made.ids, made.plain, made.decoded, made.decoded_all}).dump();
  base::Sha256 hash;
  hash.update(std::as_bytes(std::span(all)));
  return hash.hex().substr(0, 12);
}

const Json& goldens() {
  static const Json json = tokenizer_json("goldens.json");
  return json;
}

class TokenizerGoldens : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_text_libraries()) GTEST_SKIP() << "this build is without PCRE2 or utf8proc";
    tokenizer_ = text::open_tokenizer(tokenizer_file(GetParam() + std::string(".tokenizer.json")));
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
};

TEST_P(TokenizerGoldens, explicit_rows_are_equal) {
  for (const auto& [index, row] : goldens()["rows"][GetParam()].items()) {
    const std::string text = goldens()["texts"][std::stoul(index)];
    const Answers made = answers_of(*tokenizer_, text);
    EXPECT_EQ(Json(made.ids), row["ids"]) << Json(text);
    EXPECT_EQ(Json(made.plain), row["plain"]) << Json(text);
    EXPECT_EQ(made.decoded, row["decoded"].get<std::string>()) << Json(text);
    EXPECT_EQ(made.decoded_all, row["decoded_all"].get<std::string>()) << Json(text);
  }
}

TEST_P(TokenizerGoldens, all_texts_are_equal_by_hash) {
  const Json& hashes = goldens()["hashes"][GetParam()];
  for (size_t i = 0; i < hashes.size(); ++i) {
    const std::string text = goldens()["texts"][i];
    EXPECT_EQ(hash_of(answers_of(*tokenizer_, text)), hashes[i].get<std::string>()) << Json(text);
  }
}

TEST_P(TokenizerGoldens, streaming_gives_the_text_of_decode) {
  for (const Json& text : goldens()["texts"]) {
    const auto ids = tokenizer_->encode(text.get<std::string>());
    for (const bool skip : {true, false}) {
      const auto stream = tokenizer_->streaming_decoder({.skip_special = skip});
      std::string joined;
      for (const int32_t id : ids) joined += stream->push(id);
      joined += stream->finish();
      EXPECT_EQ(joined, tokenizer_->decode(ids, {.skip_special = skip})) << text;
    }
  }
}

TEST_P(TokenizerGoldens, batches_do_not_depend_on_the_number_of_threads) {
  const auto texts = goldens()["texts"].get<std::vector<std::string>>();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  base::ThreadPool one(1), three(3);
  const auto serial = tokenizer_->encode_batch(views, {}, one);
  EXPECT_EQ(serial, tokenizer_->encode_batch(views, {}, three));
  ASSERT_EQ(serial.size(), texts.size());
  for (size_t i = 0; i < texts.size(); i += 50) EXPECT_EQ(serial[i], tokenizer_->encode(texts[i]));
}

TEST_P(TokenizerGoldens, every_token_has_its_id) {
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    const auto token = tokenizer_->token_of(id);
    ASSERT_TRUE(token) << id;
    EXPECT_EQ(tokenizer_->id_of(*token), id);
  }
  EXPECT_FALSE(tokenizer_->token_of(tokenizer_->vocab_size()));
  EXPECT_FALSE(tokenizer_->token_of(-1));
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerGoldens,
                         testing::Values("gpt2", "llama3", "qwen2", "llama2", "metaspace"),
                         [](const auto& test) { return std::string(test.param); });

TEST(TokenizerGoldens, unusual_tokenizers_are_equal) {
  if (!has_text_libraries()) GTEST_SKIP() << "this build is without PCRE2 or utf8proc";
  const Json parts = tokenizer_json("parts.json");
  const auto file = std::filesystem::temp_directory_path() /
                    ("trireme_tokenizer_" + std::to_string(::getpid()) + ".json");
  for (const Json& whole : parts["whole"]) {
    std::ofstream(file) << whole["tokenizer"].dump();
    const auto tokenizer = text::open_tokenizer(file);
    for (size_t i = 0; i < parts["whole_texts"].size(); ++i) {
      const Answers made = answers_of(*tokenizer, parts["whole_texts"][i]);
      EXPECT_EQ(Json::array({made.ids, made.plain, made.decoded, made.decoded_all}),
                whole["cases"][i])
          << whole["name"] << ' ' << parts["whole_texts"][i];
    }
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace trireme::golden
