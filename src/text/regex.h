// SPDX-License-Identifier: Apache-2.0
// Regular expressions of a tokenizer.json. They are written for Oniguruma (Ruby's syntax), run by
// PCRE2, and see the character classes of Hugging Face `tokenizers` (unicode/char_classes.h). In a
// build without PCRE2 the constructor throws.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

// Bytes [begin, end) of a text.
struct Span {
  size_t begin;
  size_t end;
  bool is_match = true;

  bool operator==(const Span&) const = default;
};

class Regex {
 public:
  // Throws ConfigError if the pattern is malformed or uses what is not supported.
  explicit Regex(const std::string& oniguruma_pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Appends all matches from left to right to `matches`, which may include empty ones. Thread-safe.
  // REQUIRES: `text` is valid UTF-8.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Is PCRE2 part of this build?
bool has_regex();

}  // namespace trireme::text
