// SPDX-License-Identifier: Apache-2.0
// Every part of a tokenizer.json that cannot be used is refused by one error that names file, JSON
// path, what was found and what is supported.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "text/hf/hf_tokenizer.h"
#include "text/hf/json_value.h"

namespace trireme::text {
namespace {

class TokenizerFile : public testing::Test {
 protected:
  TokenizerFile()
      : folder_(std::filesystem::temp_directory_path() /
                ("trireme_hf_tokenizer_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~TokenizerFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file() const { return folder_ / "tokenizer.json"; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name) << content;
  }
  std::unique_ptr<Tokenizer> open(const SortedJson& json) const {
    write("tokenizer.json", json.dump());
    return open_tokenizer(folder_);
  }

  static SortedJson good() {
    return SortedJson::parse(R"({
      "version": "1.0", "truncation": null, "padding": null,
      "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false,
                        "rstrip": false, "normalized": false, "special": true}],
      "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]},
      "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed",
                        "invert": false},
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
      "decoder": {"type": "Fuse"},
      "model": {"type": "BPE", "dropout": null, "unk_token": "?",
        "continuing_subword_prefix": null, "end_of_word_suffix": "", "fuse_unk": false,
        "byte_fallback": false, "ignore_merges": false,
        "vocab": {"a": 0, "b": 1, "ab": 2, "?": 3}, "merges": ["a b"]}})");
  }

  std::filesystem::path folder_;
};

TEST_F(TokenizerFile, the_good_file_opens) {
  const auto tokenizer = open(good());
  EXPECT_EQ(tokenizer->encode("AB ba x"), (std::vector<int32_t>{4, 2, 1, 0, 3}));
  EXPECT_EQ(tokenizer->encode("<s>ab", {.add_special = false}), (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{4, 2, 1, 77}), "abb");
  EXPECT_EQ(tokenizer->vocab_size(), 5);
  EXPECT_TRUE(tokenizer->is_special(4));
  EXPECT_FALSE(tokenizer->special_ids().bos);
}

struct BadPart {
  const char* pointer;  // of the JSON value that is replaced
  const char* value;
  const char* complaint;  // must be part of the message, which also names the file
};

TEST_F(TokenizerFile, bad_parts_are_refused_with_their_place) {
  const std::vector<BadPart> parts = {
      {"/model/type", R"("Unigram")", "model.type: is \"Unigram\"; supported: BPE"},
      {"/model", "null", "the key 'model' is missing"},
      {"/model", "[]", "model: is an array of 0 values; supported: an object"},
      {"/model/dropout", "0.1", "model.dropout: is 0.1; supported: null or 0"},
      {"/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix: is \"</w>\""},
      {"/model/continuing_subword_prefix", R"("##")", "model.continuing_subword_prefix"},
      {"/model/fuse_unk", "1", "model.fuse_unk: is 1; supported: true or false"},
      {"/model/unk_token", R"("<unk>")", "the unknown token '<unk>' is not in the vocabulary"},
      {"/model/vocab", "[1]", "model.vocab: is an array of 1 values"},
      {"/model/vocab/a", "-1", "model.vocab['a']: is -1"},
      {"/model/vocab/a", "1.5", "model.vocab['a']: is 1.5"},
      {"/model/vocab/a", "1", "the id 1 is used twice"},
      {"/model/vocab/a", "99999999999", "model.vocab['a']: is 99999999999"},
      {"/model/merges", R"({"a": "b"})", "model.merges: is an object of 1 keys"},
      {"/model/merges/0", R"("ab")", "model.merges[0]: is \"ab\"; supported: two tokens"},
      {"/model/merges/0", R"(["a"])", "model.merges[0]: has 1 parts; supported: 2"},
      {"/model/merges/0", R"(["a", 1])", "model.merges[0][1]: is 1; supported: a string"},
      {"/model/merges/0", R"(["a", "x"])", "needs 'x', which is not in the vocabulary"},
      {"/model/merges/0", "7", "model.merges[0]: is 7"},
      {"/added_tokens/0/id", "5", "added_tokens[0].id: is 5, but '<s>' has the id 4"},
      {"/added_tokens/0/content", R"("")", "added_tokens[0].content: is empty"},
      {"/added_tokens/0/lstrip", R"("no")", "added_tokens[0].lstrip: is \"no\""},
      {"/normalizer", R"({"type": "Precompiled"})",
       "normalizer.type: is \"Precompiled\"; "
       "supported: NFC"},
      {"/normalizer", R"({"kind": "NFC"})", "normalizer: the key 'type' is missing"},
      {"/normalizer/normalizers/0", R"({"type": "BertNormalizer"})",
       "normalizer.normalizers[0].type: is \"BertNormalizer\""},
      {"/normalizer", R"({"type": "Replace", "pattern": {}, "content": ""})",
       "normalizer.pattern: supported: an object with one key, 'String' or 'Regex'"},
      {"/pre_tokenizer/pattern", R"({"Regex": "(a"})", "pre_tokenizer.pattern.Regex: the regular"},
      {"/pre_tokenizer/pattern", R"({"String": ""})", "pre_tokenizer.pattern.String: the pattern"},
      {"/pre_tokenizer/behavior", R"("Sometimes")", "pre_tokenizer.behavior: is \"Sometimes\""},
      {"/pre_tokenizer", R"({"type": "BertPreTokenizer"})", "supported: ByteLevel, Split"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})",
       "pre_tokenizer.replacement: is \"ab\"; supported: a string of one character"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "often"})",
       "pre_tokenizer.prepend_scheme: is \"often\"; supported: always, first, never"},
      {"/post_processor", R"({"type": "BertProcessing"})", "supported: TemplateProcessing"},
      {"/post_processor/single", "[]", "post_processor.single: has the text 0 times"},
      {"/post_processor/special_tokens", "{}", "'<s>' is not one of special_tokens"},
      {"/post_processor/special_tokens/<s>/ids", "[9]", "uses the id 9, which no token has"},
      {"/decoder", R"({"type": "WordPiece"})", "decoder.type: is \"WordPiece\"; supported: Byte"},
      {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
       "decoder.start: is -1"},
  };
  for (const BadPart& part : parts) {
    SortedJson json = good();
    json[SortedJson::json_pointer(part.pointer)] = SortedJson::parse(part.value);
    try {
      (void)open(json);
      ADD_FAILURE() << "accepted: " << part.pointer << " = " << part.value;
    } catch (const base::ConfigError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(part.complaint), std::string::npos) << message;
      EXPECT_TRUE(message.starts_with(file().string())) << message;
    }
  }
}

TEST_F(TokenizerFile, a_token_with_an_empty_normalized_form_is_refused) {
  SortedJson json = good();
  json["normalizer"] = SortedJson::parse(R"({"type": "Strip"})");
  json["added_tokens"][0]["content"] = "  ";
  json["post_processor"] = nullptr;
  EXPECT_EQ(open(json)->encode("a  b"), (std::vector<int32_t>{0, 4, 1}));
  json["added_tokens"][0]["normalized"] = true;
  try {
    (void)open(json);
    ADD_FAILURE() << "accepted";
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("added_tokens: '  ' is looked for in normalized"),
              std::string::npos)
        << error.what();
  }
}

// Ten times ten times ten ...: 4 bytes would become 40 million.
TEST_F(TokenizerFile, a_normalizer_that_multiplies_the_text_is_refused) {
  SortedJson json = good();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", SortedJson::array()}};
  for (int i = 0; i < 7; ++i) {
    json["normalizer"]["normalizers"].push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(10, 'a')}});
  }
  const auto tokenizer = open(json);
  try {
    (void)tokenizer->encode("aaaa");
    ADD_FAILURE() << "accepted";
  } catch (const base::ConfigError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(file().string() + ": normalizer: a text of 4 bytes grows to"))
        << message;
    EXPECT_NE(message.find("Replace"), std::string::npos) << message;
  }
}

TEST_F(TokenizerFile, an_id_behind_a_gap_is_refused_with_what_to_do) {
  SortedJson json = good();
  json["added_tokens"][0]["id"] = 6;
  json["post_processor"] = nullptr;
  try {
    (void)open(json);
    ADD_FAILURE() << "accepted";
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("model.vocab"), std::string::npos) << error.what();
  }
  json["model"]["vocab"]["<s>"] = 6;
  EXPECT_EQ(open(json)->encode("<s>ab"), (std::vector<int32_t>{6, 2}));
}

TEST_F(TokenizerFile, bytes_after_the_end_are_refused) {
  for (const std::string& tail :
       {std::string(1, '\0'), std::string("\0more", 5), std::string("x")}) {
    write("tokenizer.json", good().dump() + tail);
    EXPECT_THROW((void)open_tokenizer(file()), base::IoError) << tail;
  }
  write("tokenizer.json", good().dump() + " \n");
  EXPECT_EQ(open_tokenizer(file())->vocab_size(), 5);
}

TEST_F(TokenizerFile, files_that_are_no_json_are_refused) {
  for (const char* bad : {"", "{", "[1,", "\xFF", "{\"model\": \"\xC3\"}"}) {
    write("tokenizer.json", bad);
    EXPECT_THROW((void)open_tokenizer(file()), base::IoError) << bad;
  }
  write("tokenizer.json", "3");
  EXPECT_THROW((void)open_tokenizer(file()), base::ConfigError);
  std::filesystem::remove(file());
  EXPECT_THROW((void)open_tokenizer(file()), base::ConfigError);
  EXPECT_THROW((void)open_tokenizer(folder_), base::IoError);
  write("x.model", "no model");
  EXPECT_THROW((void)open_tokenizer(folder_ / "x.model"), base::ConfigError);
}

TEST_F(TokenizerFile, names_of_special_tokens_come_from_the_files_beside_it) {
  write("special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": {"content": "ab"}})");
  write("tokenizer_config.json", R"({"eos_token": "b", "pad_token": "<gone>", "unk_token": null})");
  const auto tokenizer = open(good());
  EXPECT_EQ(tokenizer->special_ids(), (SpecialIds{.bos = 4, .eos = 1}));
  EXPECT_EQ(tokenizer->files().size(), 3U);
}

TEST_F(TokenizerFile, fingerprint_depends_on_content_only) {
  const std::string first = open(good())->fingerprint();
  SortedJson same = good();
  same["model"]["merges"] = SortedJson::parse(R"([["a", "b"]])");
  same["version"] = "2.0";
  EXPECT_EQ(open(same)->fingerprint(), first);
  SortedJson other = good();
  other["model"]["fuse_unk"] = true;
  EXPECT_NE(open(other)->fingerprint(), first);
}

// Unusual files, here with a token twice, are read in another way than the common ones.
TEST_F(TokenizerFile, both_ways_to_read_a_file_agree) {
  SortedJson json = good();
  for (const char* token : {"\"", "\\", "\n", "\t", "\x01", "\x7f", "\u00e9", "\u2028", "/"}) {
    json["model"]["vocab"][token] = json["model"]["vocab"].size();
  }
  json["added_tokens"][0]["id"] = json["model"]["vocab"].size();
  json["post_processor"] = nullptr;
  json["model"]["vocab"]["\"\n"] = json["model"]["vocab"].size() + 1;
  json["model"]["vocab"]["<s>"] = json["model"]["vocab"].size() - 1;
  json["model"]["merges"].push_back("\" \n");
  const auto usual = open(json);
  std::string text = json.dump();
  const size_t at = text.find("\"vocab\":{") + 9;
  write("tokenizer.json", text.insert(at, "\"a\":7,"));
  const auto unusual = open_tokenizer(folder_);
  EXPECT_EQ(usual->fingerprint(), unusual->fingerprint());
  EXPECT_EQ(usual->vocab_size(), unusual->vocab_size());
  for (const char* sample : {"ab\"\n", "x\t<s>\u00e9"}) {
    EXPECT_EQ(usual->encode(sample), unusual->encode(sample)) << sample;
  }
}

}  // namespace
}  // namespace trireme::text
