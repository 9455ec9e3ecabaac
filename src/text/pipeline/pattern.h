// SPDX-License-Identifier: Apache-2.0
// Pattern: what a Split or Replace looks for. It divides a text into spans that follow each other
// and are matches or not.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/known_patterns.h"
#include "text/regex.h"

namespace trireme::text {

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Appends spans that cover `text`, which is valid UTF-8 and not empty. Thread-safe.
  virtual void find(std::string_view text, std::vector<Span>& spans) const = 0;
  // The pattern, if all of the text is cut into matches by a hand-written loop.
  virtual std::optional<KnownPattern> known() const { return std::nullopt; }
};

// REQUIRES: `literal` is not empty.
std::unique_ptr<Pattern> literal_pattern(std::string literal);
std::unique_ptr<Pattern> regex_pattern(const std::string& regex);
// Every code point with one of the bits of char_classes.h is a match.
std::unique_ptr<Pattern> class_pattern(unsigned char bits);
// \w+|[^\w\s]+ of Rust
std::unique_ptr<Pattern> words_pattern();

}  // namespace trireme::text
