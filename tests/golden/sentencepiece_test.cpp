// SPDX-License-Identifier: Apache-2.0
// SentencePiece models through the Tokenizer interface, against the library's own Python binding.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/golden/tokenizer_files.h"
#include "text/tokenizer.h"

namespace trireme::golden {
namespace {

// nullptr in a build without SentencePiece.
std::unique_ptr<text::Tokenizer> open_model(const std::string& name) {
  try {
    return text::open_tokenizer(tokenizer_file(name + ".model"));
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("libsentencepiece-dev"), std::string::npos);
    return nullptr;
  }
}

TEST(SentencePiece, ids_and_text_are_equal) {
  const nlohmann::json goldens = tokenizer_json("sentencepiece.json");
  for (const auto& [name, golden] : goldens["models"].items()) {
    const auto tokenizer = open_model(name);
    if (tokenizer == nullptr) GTEST_SKIP() << "this build is without SentencePiece";
    EXPECT_EQ(tokenizer->vocab_size(), golden["vocab_size"].get<int32_t>());
    EXPECT_EQ(tokenizer->special_ids().bos, golden["bos"].get<int32_t>());
    EXPECT_EQ(tokenizer->special_ids().eos, golden["eos"].get<int32_t>());
    for (size_t i = 0; i < goldens["texts"].size(); ++i) {
      const std::string text = goldens["texts"][i];
      const auto ids = tokenizer->encode(text, {.add_special = false});
      EXPECT_EQ(nlohmann::json(ids), golden["rows"][i][0]) << name << text;
      const std::string decoded = tokenizer->decode(ids);
      EXPECT_EQ(decoded, golden["rows"][i][1].get<std::string>()) << name << text;
      auto with_bos = ids;
      with_bos.insert(with_bos.begin(), *tokenizer->special_ids().bos);
      EXPECT_EQ(tokenizer->encode(text), with_bos);
      const auto stream = tokenizer->streaming_decoder();
      std::string joined;
      for (const int32_t id : with_bos) joined += stream->push(id);
      EXPECT_EQ(joined + stream->finish(), decoded) << name << text;
    }
    EXPECT_EQ(tokenizer->files().size(), 1U);
    EXPECT_EQ(tokenizer->fingerprint().size(), 64U);
    EXPECT_EQ(tokenizer->id_of("<s>"), tokenizer->special_ids().bos);
    EXPECT_FALSE(tokenizer->id_of("no such piece"));
  }
}

}  // namespace
}  // namespace trireme::golden
