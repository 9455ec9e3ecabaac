// SPDX-License-Identifier: Apache-2.0
#include "text/token_bytes.h"

#include <string>
#include <string_view>

namespace trireme::text {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

// Is it a byte of a tokenizer with byte fallback, as <0x0A>?
bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
}

int64_t code_points(std::string_view token) {
  int64_t count = 0;
  for (const char c : token) {
    if ((static_cast<unsigned char>(c) & 0xc0U) != 0x80U) ++count;
  }
  return count;
}

// `before` is a token before it, because decoders change the first one: they remove its space.
int64_t bytes_of(const Tokenizer& tokenizer, int32_t id, const std::vector<int32_t>& before) {
  const auto token = tokenizer.token_of(id);
  if (!token || tokenizer.is_special(id)) return 0;
  if (is_byte_token(*token)) return 1;
  std::vector<int32_t> ids = before;
  ids.push_back(id);
  const std::string text = tokenizer.decode(ids).substr(tokenizer.decode(before).size());
  const bool is_part =
      text.find(replacement) != std::string::npos && token->find(replacement) == std::string::npos;
  // Tokens of the byte-level alphabet have one code point for each byte.
  return is_part ? code_points(*token) : static_cast<int64_t>(text.size());
}

}  // namespace

std::vector<int32_t> token_bytes(const Tokenizer& tokenizer) {
  std::vector<int32_t> bytes;
  std::vector<int32_t> before;
  if (const auto letter = tokenizer.id_of("a")) before.push_back(*letter);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    bytes.push_back(static_cast<int32_t>(bytes_of(tokenizer, id, before)));
  }
  return bytes;
}

}  // namespace trireme::text
