// SPDX-License-Identifier: Apache-2.0
// trireme data tokenizer inspect, encode and decode.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/text/json.h"
#include "cli/data/data_verbs.h"
#include "cli/shell/number_words.h"
#include "text/hf/json_value.h"
#include "text/tokenizer.h"

namespace trireme::cli {
namespace {

using base::ConfigError;
using base::Json;

Option data_tokenizer_option() {
  return {.name = "tokenizer",
          .help = "tokenizer.json, a folder that has one, or a SentencePiece .model",
          .is_required = true};
}

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

// "NFC", or "Split(\\p{N}) + ByteLevel" for a sequence.
std::string part_text(const text::SortedJson& part) {
  if (!part.is_object()) return "none";
  for (const char* list : {"normalizers", "pretokenizers", "decoders", "processors"}) {
    if (!part.contains(list) || !part[list].is_array()) continue;
    std::vector<std::string> parts;
    for (const text::SortedJson& one : part[list]) parts.push_back(part_text(one));
    return fmt::format("{}", fmt::join(parts, " + "));
  }
  std::string name = part.value("type", std::string("?"));
  const auto pattern = part.find("pattern");
  if (pattern == part.end()) return name;
  if (pattern->is_string()) return fmt::format("{}({})", name, pattern->get<std::string>());
  for (const char* kind : {"Regex", "String"}) {
    if (pattern->is_object() && pattern->contains(kind)) {
      return fmt::format("{}({})", name, pattern->at(kind).get<std::string>());
    }
  }
  return name;
}

Json special_json(const text::Tokenizer& tokenizer) {
  const text::SpecialIds& ids = tokenizer.special_ids();
  Json named = Json::object(), all = Json::array();
  const auto add = [&](const char* name, const std::optional<int32_t>& id) {
    if (id) named[name] = {{"id", *id}, {"token", tokenizer.token_of(*id).value_or("")}};
  };
  add("bos", ids.bos);
  add("eos", ids.eos);
  add("unk", ids.unk);
  add("pad", ids.pad);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) all.push_back({{"id", id}, {"token", *tokenizer.token_of(id)}});
  }
  return {{"named", named}, {"all", all}};
}

int run_inspect_tokenizer(const Args& args) {
  const auto tokenizer = text::open_tokenizer(args.text("tokenizer"));
  const std::filesystem::path& main_file = tokenizer->files().front();
  const bool is_model = main_file.extension() == ".model";
  Json result{{"ok", true},
              {"file", main_file.string()},
              {"type", is_model ? "SentencePiece" : "BPE (tokenizer.json)"},
              {"vocab", tokenizer->vocab_size()},
              {"fingerprint", tokenizer->fingerprint()}};
  int64_t unused = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) unused += !tokenizer->token_of(id);
  result["ids_without_token"] = unused;
  if (!is_model) {
    const text::SortedJson json = text::read_json(main_file);
    result["merges"] = json.at("model").at("merges").size();
    for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
      result[part] = json.contains(part) ? part_text(json.at(part)) : "none";
    }
  }
  result["special"] = special_json(*tokenizer);
  Json files = Json::array();
  for (const auto& file : tokenizer->files()) files.push_back(file.string());
  result["files"] = files;
  if (args.wants_json()) {
    fmt::print("{}\n", result.dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  const auto row = [](const std::string& label, const std::string& value) {
    fmt::print("  {:<14} {}\n", label, value);
  };
  fmt::print("{}\n", main_file.string());
  row("type", result["type"].get<std::string>());
  row("vocabulary", fmt::format("{} ids, {} without a token", tokenizer->vocab_size(), unused));
  if (!is_model) {
    row("merges", result["merges"].dump());
    row("normalizer", result["normalizer"].get<std::string>());
    row("pre-tokenizer", result["pre_tokenizer"].get<std::string>());
    row("template", result["post_processor"].get<std::string>());
    row("decoder", result["decoder"].get<std::string>());
  }
  const auto token = [](const Json& one) {
    return fmt::format("{} '{}'", one["id"].get<int64_t>(), one["token"].get<std::string>());
  };
  for (const auto& item : result["special"]["named"].items()) row(item.key(), token(item.value()));
  for (const Json& one : result["special"]["all"]) row("special", token(one));
  row("fingerprint", tokenizer->fingerprint());
  return 0;
}

int run_encode(const Args& args) {
  const auto tokenizer = text::open_tokenizer(args.text("tokenizer"));
  const std::string text = args.has("text") ? args.text("text") : standard_input();
  const std::vector<int32_t> ids =
      tokenizer->encode(text, {.add_special = args.flag("--add-special")});
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.push_back(tokenizer->token_of(id).value_or(""));
  if (args.wants_json()) {
    fmt::print("{}\n", Json{{"ok", true}, {"ids", ids}, {"pieces", pieces}}.dump(
                           -1, ' ', false, Json::error_handler_t::replace));
  } else if (args.flag("--pieces")) {
    for (size_t i = 0; i < ids.size(); ++i) fmt::print("{}\t{}\n", ids[i], pieces[i]);
  } else {
    fmt::print("{}\n", fmt::join(ids, " "));
  }
  return 0;
}

// Numbers between blanks, commas and brackets, as programs print lists.
std::vector<int32_t> ids_in(const std::string& text, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (size_t at = 0; (at = text.find_first_not_of(" \t\r\n,[]", at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" \t\r\n,[]", at), text.size());
    const std::string word = text.substr(at, end - at);
    const auto id = integer_from(word);
    if (!id || *id < 0 || *id >= tokenizer.vocab_size()) {
      throw ConfigError(fmt::format("'{}' is not an id of the tokenizer; allowed: 0 .. {}", word,
                                    tokenizer.vocab_size() - 1));
    }
    ids.push_back(static_cast<int32_t>(*id));
    at = end;
  }
  return ids;
}

int run_decode(const Args& args) {
  const auto tokenizer = text::open_tokenizer(args.text("tokenizer"));
  const std::string words =
      args.has("ids") ? fmt::format("{}", fmt::join(args.list("ids"), " ")) : standard_input();
  const std::string text =
      tokenizer->decode(ids_in(words, *tokenizer), {.skip_special = args.flag("--skip-special")});
  if (args.wants_json()) {
    fmt::print("{}\n", Json{{"ok", true}, {"text", text}}.dump(-1, ' ', false,
                                                               Json::error_handler_t::replace));
  } else {
    fmt::print("{}\n", text);
  }
  return 0;
}

}  // namespace

Verb tokenizer_inspect_verb() {
  return {.name = "data tokenizer inspect",
          .summary = "Print vocabulary, special tokens and steps of a tokenizer",
          .details = "Examples:\n  trireme data tokenizer inspect model/tokenizer.json",
          .options = {data_tokenizer_option()},
          .run = run_inspect_tokenizer};
}

Verb tokenizer_encode_verb() {
  return {.name = "data tokenizer encode",
          .summary = "Print the ids of a text",
          .details =
              "Examples:\n"
              "  trireme data tokenizer encode model/tokenizer.json 'In the beginning'\n"
              "  trireme data tokenizer encode model/tokenizer.json 'In the beginning' "
              "--pieces",
          .options = {data_tokenizer_option(),
                      {.name = "text", .help = "Text to encode; default: standard input"},
                      {.name = "--pieces",
                       .kind = Kind::flag,
                       .help = "Print a line with id and piece for each token"},
                      {.name = "--add-special",
                       .kind = Kind::flag,
                       .help = "Add the tokens that the tokenizer puts around texts"}},
          .run = run_encode};
}

Verb tokenizer_decode_verb() {
  return {.name = "data tokenizer decode",
          .summary = "Print the text of ids",
          .details = "Examples:\n  trireme data tokenizer decode model/tokenizer.json 72 105",
          .options = {data_tokenizer_option(),
                      {.name = "ids",
                       .kind = Kind::list,
                       .help = "Ids, separated by blanks or commas; default: standard input"},
                      {.name = "--skip-special",
                       .kind = Kind::flag,
                       .help = "Leave out special tokens"}},
          .run = run_decode};
}

}  // namespace trireme::cli
