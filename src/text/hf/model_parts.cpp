// SPDX-License-Identifier: Apache-2.0
// The model and the added tokens.
#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "text/hf/parts.h"

namespace trireme::text {

namespace {

BpeModel::Vocabulary read_vocabulary(const JsonValue& json) {
  if (!json.raw().is_object()) json.fail_supported("an object of tokens and their ids");
  BpeModel::Vocabulary vocabulary;
  vocabulary.reserve(json.raw().size());
  std::unordered_set<int32_t> taken;
  for (const auto& [token, value] : json.raw().items()) {
    const JsonValue place = json.inside(value, fmt::format("['{}']", token));
    const auto id = static_cast<int32_t>(place.integer(0, max_token_id));
    if (!taken.insert(id).second) place.fail(fmt::format("the id {} is used twice", id));
    vocabulary.emplace(token, id);
  }
  return vocabulary;
}

// "a b" or ["a", "b"]
BpeModel::MergeRule read_merge(const JsonValue& json) {
  if (json.is_array()) {
    const auto items = json.items();
    if (items.size() != 2) json.fail(fmt::format("has {} parts; supported: 2", items.size()));
    return {items[0].string(), items[1].string()};
  }
  if (!json.is_string()) json.fail_supported("a string 'a b' or an array of two strings");
  BpeModel::MergeRule merge;
  if (!split_merge(json.string(), merge)) {
    json.fail_supported("two tokens with one space between them");
  }
  return merge;
}

void check_unsupported(const JsonValue& json) {
  if (const auto type = json.find("type"); type && type->string() != "BPE") {
    type->fail_supported("BPE (a SentencePiece .model is supported, too)");
  }
  if (const auto dropout = json.find("dropout");
      dropout && !(dropout->raw().is_number() && dropout->raw().get<double>() == 0.0)) {
    dropout->fail_supported("null or 0: training data must not depend on chance");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto value = json.find(key); value && !value->string().empty()) {
      value->fail_supported("null or an empty string");
    }
  }
}

}  // namespace

std::unique_ptr<BpeModel> read_bpe_model(const JsonValue& json,
                                         const std::optional<ModelTables>& tables) {
  check_unsupported(json);
  BpeOptions options{.fuse_unk = json.boolean_or("fuse_unk", false),
                     .byte_fallback = json.boolean_or("byte_fallback", false),
                     .ignore_merges = json.boolean_or("ignore_merges", false)};
  if (const auto unk = json.find("unk_token")) options.unk_token = unk->string();
  auto vocabulary = tables ? BpeModel::Vocabulary(tables->vocab.begin(), tables->vocab.end())
                           : read_vocabulary(json.at("vocab"));
  std::vector<BpeModel::MergeRule> unusual;
  if (!tables) {
    for (const JsonValue& merge : json.at("merges").items()) unusual.push_back(read_merge(merge));
  }
  try {
    return std::make_unique<BpeModel>(std::move(vocabulary), tables ? tables->merges : unusual,
                                      std::move(options));
  } catch (const base::ConfigError& error) {
    json.fail(error.what());
  }
}

std::vector<AddedToken> read_added_tokens(const JsonValue& json,
                                          const BpeModel::Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, size_t> places;
  auto next = static_cast<int32_t>(vocabulary.size());
  for (const JsonValue& item : json.items()) {
    AddedToken token{.content = item.at("content").string(),
                     .id = static_cast<int32_t>(item.at("id").integer(0, max_token_id)),
                     .single_word = item.boolean_or("single_word", false),
                     .lstrip = item.boolean_or("lstrip", false),
                     .rstrip = item.boolean_or("rstrip", false),
                     .normalized = item.boolean_or("normalized", true),
                     .special = item.boolean_or("special", false)};
    if (token.content.empty()) item.at("content").fail("is empty");
    // A token has the id of the vocabulary, or the next one behind it: `tokenizers` would read a
    // file with another id, and use the one below.
    const auto found = vocabulary.find(token.content);
    const auto [before, is_new] = places.emplace(token.content, tokens.size());
    const int32_t id = !is_new                     ? tokens[before->second].id
                       : found != vocabulary.end() ? found->second
                                                   : next++;
    if (id != token.id) {
      item.at("id").fail(
          fmt::format("is {}, but '{}' has the id {} by the vocabulary and the tokens before it; "
                      "write the token with the id that is meant into model.vocab",
                      token.id, token.content, id));
    }
    if (is_new) {
      tokens.push_back(std::move(token));
    } else {  // the last flags count, and a special token stays special
      AddedToken& same = tokens[before->second];
      token.special = token.special || same.special;
      same = std::move(token);
    }
  }
  return tokens;
}

}  // namespace trireme::text
