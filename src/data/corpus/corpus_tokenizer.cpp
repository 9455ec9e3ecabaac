// SPDX-License-Identifier: Apache-2.0
#include "data/corpus/corpus_tokenizer.h"

#include <fmt/core.h>

#include <charconv>
#include <optional>
#include <vector>

#include "base/error.h"

namespace trireme::data {
namespace {

using base::ConfigError;

constexpr int32_t no_token = -1;

// Returns the number that the whole text is, "none" as -1.
std::optional<int64_t> id_in(const std::string& text) {
  if (text == "none") return no_token;
  int64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

// "0 '<|endoftext|>', 5 '</s>'", at most 20.
std::string special_tokens_of(const text::Tokenizer& tokenizer) {
  constexpr int max_listed = 20;
  std::string list;
  int listed = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    if (++listed > max_listed) return list + ", ...";
    list += fmt::format("{}{} '{}'", list.empty() ? "" : ", ", id, tokenizer.token_of(id).value());
  }
  return list.empty() ? "it has none" : list;
}

int32_t token_in(const text::Tokenizer& tokenizer, const std::string& text, const char* option) {
  if (const auto id = id_in(text)) {
    if (*id < no_token || *id >= tokenizer.vocab_size()) {
      throw ConfigError(
          fmt::format("{} {}: the tokenizer has the ids 0 .. {}; -1: none; its special tokens: {}",
                      option, *id, tokenizer.vocab_size() - 1, special_tokens_of(tokenizer)));
    }
    return static_cast<int32_t>(*id);
  }
  const auto named = tokenizer.id_of(text);
  if (!named) {
    throw ConfigError(
        fmt::format("{} '{}': is not a token; give an id or a name; special tokens: {}", option,
                    text, special_tokens_of(tokenizer)));
  }
  return *named;
}

int32_t byte_token_in(const std::string& text, const char* option) {
  constexpr int64_t max_id = 1 << 24;
  const auto id = id_in(text);
  if (!id || *id < no_token || *id > max_id) {
    throw ConfigError(fmt::format(
        "{} '{}': with bytes as tokens, allowed: an id of 0 .. {} (256 adds a token to the "
        "vocabulary), or -1 for none",
        option, text, max_id));
  }
  return static_cast<int32_t>(*id);
}

}  // namespace

CorpusTokenizer corpus_tokenizer(std::shared_ptr<const text::Tokenizer> tokenizer,
                                 const DocumentTokens& tokens) {
  CorpusTokenizer result;
  result.vocab = tokenizer->vocab_size();
  result.fingerprint = tokenizer->fingerprint();
  result.files = tokenizer->files();
  result.begin_of_document =
      tokens.begin.empty() ? no_token : token_in(*tokenizer, tokens.begin, "--bod");
  if (!tokens.end.empty()) {
    result.end_of_document = token_in(*tokenizer, tokens.end, "--eod");
  } else if (tokenizer->special_ids().eos) {
    result.end_of_document = *tokenizer->special_ids().eos;
  } else {
    throw ConfigError(fmt::format(
        "{}: the tokenizer does not name its end-of-text token (eos_token in "
        "tokenizer_config.json); give the token that ends documents with --eod, by id or name, or "
        "--eod -1 for none; special tokens: {}",
        tokenizer->files().front().string(), special_tokens_of(*tokenizer)));
  }
  // The encoders share the tokenizer, which any number of threads may use.
  result.make_encoder = [tokenizer]() -> Encoder {
    return [tokenizer](std::string_view text, std::vector<int32_t>& out) {
      const std::vector<int32_t> ids = tokenizer->encode(text, {.add_special = false});
      out.insert(out.end(), ids.begin(), ids.end());
    };
  };
  return result;
}

CorpusTokenizer byte_tokenizer(const DocumentTokens& tokens) {
  CorpusTokenizer result;
  if (!tokens.begin.empty()) result.begin_of_document = byte_token_in(tokens.begin, "--bod");
  if (!tokens.end.empty()) result.end_of_document = byte_token_in(tokens.end, "--eod");
  return result;
}

}  // namespace trireme::data
