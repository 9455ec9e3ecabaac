// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/added_tokens.h"

#include <algorithm>

#include "text/unicode/char_classes.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

bool is_word_char(char32_t c) { return CharClasses::table().is(c, char_class::word); }
bool is_space_char(char32_t c) { return CharClasses::table().is(c, char_class::space); }

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool follows_word = begin > 0 && is_word_char(code_point_before(text.data() + begin).value);
  const bool precedes_word =
      end < text.size() && is_word_char(code_point_at(text.data() + end).value);
  return !follows_word && !precedes_word;
}

}  // namespace

void AddedTokenMatcher::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  is_first_[static_cast<unsigned char>(pattern.front())] = true;
  uint32_t node = 0;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].next.emplace_back(byte, next);
    }
    node = next;
  }
  if (nodes_[node].token == nullptr) nodes_[node].token = &token;
}

uint32_t AddedTokenMatcher::child(uint32_t node, unsigned char byte) const {
  for (const auto& [each, next] : nodes_[node].next) {
    if (each == byte) return next;
  }
  return 0;
}

void AddedTokenMatcher::find(std::string_view text, std::vector<Match>& matches) const {
  if (is_empty()) return;
  size_t done = 0;  // end of the last match that counted, with the white space that it took
  for (size_t i = 0; i < text.size();) {
    if (!is_first_[static_cast<unsigned char>(text[i])]) {
      ++i;
      continue;
    }
    const AddedToken* token = nullptr;
    size_t stop = i;
    uint32_t node = 0;
    for (size_t k = i; k < text.size(); ++k) {
      node = child(node, static_cast<unsigned char>(text[k]));
      if (node == 0) break;
      if (nodes_[node].token != nullptr) {
        token = nodes_[node].token;
        stop = k + 1;
      }
    }
    if (token == nullptr) {
      ++i;
      continue;
    }
    size_t begin = i, end = stop;
    i = stop;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->lstrip) {
      while (begin > done) {
        const CodePoint point = code_point_before(text.data() + begin);
        if (!is_space_char(point.value)) break;
        begin -= point.bytes;
      }
      begin = std::max(begin, done);
    }
    while (token->rstrip && end < text.size()) {
      const CodePoint point = code_point_at(text.data() + end);
      if (!is_space_char(point.value)) break;
      end += point.bytes;
    }
    // The token is white space that the token before has taken.
    if (begin >= end) continue;
    matches.push_back({token, begin, end});
    done = end;
  }
}

}  // namespace trireme::text
