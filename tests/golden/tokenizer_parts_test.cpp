// SPDX-License-Identifier: Apache-2.0
// Single parts of tokenizers against Hugging Face `tokenizers`: pre-tokenizers, normalizers,
// decoders, and how every code point is split and normalized.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/sha256.h"
#include "tests/golden/tokenizer_files.h"
#include "text/hf/parts.h"
#include "text/pipeline/known_patterns.h"
#include "text/unicode/utf8.h"

namespace trireme::golden {
namespace {

using Json = nlohmann::json;
using text::KnownPattern;

const std::string no_file = "golden";

std::vector<std::string> pieces_of(const text::PreTokenizer& part, const std::string& text) {
  text::PieceList list;
  if (!text.empty()) part.apply({text, true}, list);
  std::vector<std::string> pieces;
  for (const text::Piece& piece : list.pieces) pieces.emplace_back(piece.text);
  return pieces;
}

// What Oniguruma accepts and Trireme refuses.
bool is_refused_pattern(const Json& part) {
  const std::string text = part.dump();
  return text.find("[:alpha:]") != std::string::npos || text.find("{1,2}+") != std::string::npos ||
         text.find("(?m:") != std::string::npos || text.find("stra") != std::string::npos;
}

TEST(TokenizerParts, pre_tokenizers_and_normalizers_are_equal) {
  if (!has_text_libraries()) GTEST_SKIP() << "this build is without PCRE2 or utf8proc";
  const Json goldens = tokenizer_json("parts.json");
  int refused = 0;
  for (const Json& golden : goldens["parts"]) {
    const Json& json = golden["json"];
    const text::JsonValue value(json, no_file);
    if (is_refused_pattern(json)) {
      EXPECT_THROW((void)text::read_pre_tokenizer(value, false), base::ConfigError) << json;
      ++refused;
      continue;
    }
    for (size_t i = 0; i < goldens["texts"].size(); ++i) {
      const std::string text = goldens["texts"][i];
      if (golden["kind"] == "pre_tokenizer") {
        const auto part = text::read_pre_tokenizer(value, false);
        EXPECT_EQ(Json(pieces_of(*part.part, text)), golden["cases"][i]) << json << Json(text);
      } else {
        std::string storage;
        bool keeps_start = true;
        const auto part = text::read_normalizer(value);
        EXPECT_EQ(std::string(part->apply(text, storage, keeps_start)),
                  golden["cases"][i].get<std::string>())
            << json << Json(text);
      }
    }
  }
  EXPECT_EQ(refused, 4);
}

TEST(TokenizerParts, decoders_are_equal) {
  if (!has_text_libraries()) GTEST_SKIP() << "this build is without PCRE2 or utf8proc";
  const Json goldens = tokenizer_json("parts.json");
  for (const Json& golden : goldens["decoders"]) {
    const auto parts = text::read_decoder(text::JsonValue(golden["json"], no_file));
    for (size_t i = 0; i < goldens["token_lists"].size(); ++i) {
      text::DecodeStream stream(parts);
      std::string made;
      for (const Json& token : goldens["token_lists"][i]) {
        stream.push(token.get<std::string>(), made);
      }
      stream.finish(made);
      EXPECT_EQ(made, golden["cases"][i].get<std::string>())
          << golden["json"] << goldens["token_lists"][i];
    }
  }
}

const std::vector<std::pair<const char*, KnownPattern>> patterns = {
    {"gpt2", KnownPattern::gpt2}, {"llama3", KnownPattern::llama3}, {"qwen2", KnownPattern::qwen2}};

// The seven contexts of splits.json around a character.
std::array<std::string, 7> contexts_of(const std::string& c) {
  return {c, "a" + c + "b", "1" + c + "2", " " + c + " ", "\n" + c + "\n", "'" + c, c + c + " x"};
}

// Lengths in code points, "1,2|3|..." as in splits.json.
template <typename Split>
std::string split_class(const std::string& c, Split&& split) {
  std::string text;
  std::vector<std::string_view> pieces;
  for (const std::string& context : contexts_of(c)) {
    if (!text.empty()) text += '|';
    pieces.clear();
    split(context, pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto count = std::count_if(pieces[i].begin(), pieces[i].end(),
                                       [](char byte) { return !text::is_continuation(byte); });
      text += (i == 0 ? "" : ",") + std::to_string(count);
    }
  }
  return text;
}

TEST(TokenizerParts, loops_split_every_code_point_as_tokenizers_does) {
  const Json goldens = tokenizer_json("splits.json");
  for (const auto& [name, pattern] : patterns) {
    int64_t count = 0, wrong = 0;
    for (const Json& range : goldens["splits"][name]["ranges"]) {
      const std::string wanted = goldens["splits"][name]["classes"][range[2].get<size_t>()];
      for (uint32_t c = range[0]; c <= range[1].get<uint32_t>(); ++c) {
        // Far from the ends of a large range every seventh code point will do.
        const bool is_inside =
            c > range[0].get<uint32_t>() + 300 && c + 300 < range[1].get<uint32_t>() && c % 7 != 0;
        if (is_inside) continue;
        std::string text;
        text::append_utf8(text, c);
        ++count;
        wrong += split_class(text, [&](const std::string& context, auto& pieces) {
                   text::split_by(pattern, context, pieces);
                 }) != wanted;
      }
    }
    EXPECT_EQ(wrong, 0) << name;
    EXPECT_GT(count, 200000);
  }
}

std::vector<std::string_view> regex_pieces(const text::Regex& regex, std::string_view text) {
  std::vector<text::Span> spans;
  regex.find_all(text, spans);
  std::vector<std::string_view> pieces;
  for (const text::Span& span : spans) {
    pieces.push_back(text.substr(span.begin, span.end - span.begin));
  }
  return pieces;
}

TEST(TokenizerParts, loops_equal_regular_expressions_on_every_code_point) {
  if (!text::has_regex()) GTEST_SKIP() << "this build is without PCRE2";
  std::string all;
  for (uint32_t c = 0; c < 0x110000; c += c < 0x3400 || c % 0x400 < 0x80 ? 1 : 3) {
    if (c >= 0xD800 && c < 0xE000) continue;
    text::append_utf8(all, c);
    all += c % 2 == 0 ? "a'" : " ";
    text::append_utf8(all, c);
  }
  for (const auto& [name, pattern] : patterns) {
    const text::Regex regex{std::string(text::regex_of(pattern))};
    std::vector<std::string_view> pieces;
    text::split_by(pattern, all, pieces);
    EXPECT_TRUE(regex_pieces(regex, all) == pieces) << name;
  }
}

TEST(TokenizerParts, loops_equal_regular_expressions_on_random_text) {
  if (!text::has_regex()) GTEST_SKIP() << "this build is without PCRE2";
  const std::vector<std::string> alphabet = {"a",      "Z",
                                             "é",      "ſ",
                                             "s",      "S",
                                             "t",      "re",
                                             "LL",     "'",
                                             "'",      " ",
                                             " ",      "  ",
                                             "\n",     "\r",
                                             "\t",     "\u00a0",
                                             "\u3000", "\u0085",
                                             "1",      "23",
                                             "٣",      "½",
                                             "!",      "-",
                                             "_",      "日",
                                             "本",     "👍",
                                             "\u0301", "\u180e",
                                             "\u2028", std::string("\0", 1),
                                             "ve",     "K",
                                             "İ"};
  std::mt19937 random(20);
  for (const auto& [name, pattern] : patterns) {
    const text::Regex regex{std::string(text::regex_of(pattern))};
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (auto n = random() % 25; n > 0; --n) text += alphabet[random() % alphabet.size()];
      std::vector<std::string_view> pieces;
      text::split_by(pattern, text, pieces);
      EXPECT_EQ(regex_pieces(regex, text), pieces) << name << Json(text);
    }
  }
}

TEST(TokenizerParts, normal_forms_and_lower_case_of_every_code_point_are_equal) {
  if (!has_text_libraries()) GTEST_SKIP() << "this build is without PCRE2 or utf8proc";
  const Json goldens = tokenizer_json("normal_forms.json");
  for (const auto& [name, wanted] : goldens["all_code_points"].items()) {
    const std::string type = name == "lower"  ? "Lowercase"
                             : name == "nfc"  ? "NFC"
                             : name == "nfd"  ? "NFD"
                             : name == "nfkc" ? "NFKC"
                                              : "NFKD";
    const Json json = {{"type", type}};
    const auto part = text::read_normalizer(text::JsonValue(json, no_file));
    base::Sha256 hash;
    std::string text, storage, all;
    for (uint32_t c = 0; c < 0x110000; ++c) {
      if ((c >= 0xD800 && c < 0xE000) || (c >= 0xAC00 && c <= 0xD7A3)) continue;
      text.clear();
      text::append_utf8(text, c);
      bool keeps_start = true;
      all += part->apply(text, storage, keeps_start);
      all += '\n';
    }
    hash.update(std::as_bytes(std::span(all)));
    EXPECT_EQ(hash.hex(), wanted.get<std::string>()) << name;
  }
}

}  // namespace
}  // namespace trireme::golden
