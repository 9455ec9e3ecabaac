// SPDX-License-Identifier: Apache-2.0
// The parts of tokenizer.json that known models publish (known_models.json, as `tokenizers` saved
// them) load, and text survives being encoded and decoded. bench/peers/compare_tokenizers.py
// compares their ids with those of `tokenizers`.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/golden/tokenizer_files.h"
#include "text/bpe/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/unicode/utf8.h"

namespace trireme::golden {
namespace {

using Json = nlohmann::json;

// A vocabulary of bytes as characters and as <0x00> to <0xFF>, behind the model's special tokens.
Json with_vocabulary(const Json& parts) {
  Json file = parts;
  Json vocabulary = Json::object();
  const auto add = [&](const std::string& token) {
    if (!vocabulary.contains(token)) vocabulary[token] = vocabulary.size();
  };
  for (const Json& token : parts["added_tokens"]) add(token["content"]);
  for (const char32_t c : text::byte_alphabet()) {
    std::string token;
    text::append_utf8(token, c);
    add(token);
  }
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    add(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
  }
  for (const char* token : {"▁", "th", "the", "▁the"}) add(token);
  file["model"]["vocab"] = vocabulary;
  file["model"]["merges"] = Json::parse(R"(["t h", "th e", "▁ the"])");
  return file;
}

TEST(KnownModels, parts_load_and_text_survives) {
  if (!has_text_libraries()) GTEST_SKIP() << "this build is without PCRE2 or utf8proc";
  const auto folder = std::filesystem::temp_directory_path() /
                      ("trireme_known_models_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::vector<std::string> texts = {"the cat, the 12345 Cats'LL",
                                          "x",
                                          "日本語の文章。한국어",
                                          "مرحبا ١٢٣ 👍🏽 नमस्ते",
                                          "if (a[0] != b) {\n\t\treturn the->x;\r\n}\n\n",
                                          "A\u00A0B\u2003C  D   \n E"};
  const Json models = tokenizer_json("known_models.json");
  EXPECT_EQ(models.size(), 22U);
  for (const auto& [name, parts] : models.items()) {
    std::ofstream(folder / "tokenizer.json") << with_vocabulary(parts).dump();
    const auto tokenizer = text::open_tokenizer(folder);
    for (const std::string& text : texts) {
      const auto ids = tokenizer->encode(text);
      const std::string decoded = tokenizer->decode(ids);
      // RoBERTa puts a space before the text and leaves it there.
      EXPECT_EQ(decoded, name == "roberta" ? " " + text : text) << name;
      EXPECT_LT(ids.size(), text.size() + 4) << name;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme::golden
