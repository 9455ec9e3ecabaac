// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/known_patterns.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "text/unicode/char_classes.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

constexpr uint8_t kind_other = 0;  // neither letter nor number nor white space
constexpr uint8_t kind_letter = char_class::letter, kind_number = char_class::number,
                  kind_space = char_class::space;
constexpr uint8_t not_ascii = 0xFF;

constexpr std::array<uint8_t, 256> ascii_classes = [] {
  std::array<uint8_t, 256> table{};
  for (size_t c = 0; c < 256; ++c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_space = c == ' ' || (c >= 9 && c <= 13);
    table[c] = c >= 0x80              ? not_ascii
               : is_letter            ? kind_letter
               : c >= '0' && c <= '9' ? kind_number
               : is_space             ? kind_space
                                      : kind_other;
  }
  return table;
}();

struct Char {
  uint8_t kind;
  uint8_t bytes;
};

// Alternatives of a pattern are functions that return the end of their match, or nullptr.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : end_(text.data() + text.size()) {}

  Char at(const char* p) const {
    const uint8_t kind = ascii_classes[static_cast<unsigned char>(*p)];
    if (kind != not_ascii) return {kind, 1};
    const CodePoint point = code_point_at(p);
    return {
        static_cast<uint8_t>(classes_.of(point.value) & (kind_letter | kind_number | kind_space)),
        static_cast<uint8_t>(point.bytes)};
  }

  // The end of the run of `kind` that begins at p, which may be empty.
  const char* run(const char* p, uint8_t kind) const {
    while (true) {
      while (p < end_ && ascii_classes[static_cast<unsigned char>(*p)] == kind) ++p;
      if (p == end_ || ascii_classes[static_cast<unsigned char>(*p)] != not_ascii) return p;
      const Char c = at(p);
      if (c.kind != kind) return p;
      p += c.bytes;
    }
  }

  static bool is_newline(char c) { return c == '\n' || c == '\r'; }

  //  's|'t|'re|'ve|'m|'ll|'d   REQUIRES: *p is an apostrophe.
  template <bool any_case>
  const char* contraction(const char* p) const {
    const auto letter_at = [&](int i) -> char {
      if (p + i >= end_) return '\0';
      const char c = p[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    const char first = letter_at(1), second = letter_at(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l')) {
      return p + 3;
    }
    // U+017F, the long s, is an s without regard to case.
    if (any_case && first == '\xC5' && second == '\xBF') return p + 3;
    return nullptr;
  }

  //  \s+(?!\S)|\s+   REQUIRES: [p, stop) is the whole run of white space, not empty.
  const char* spaces(const char* p, const char* stop) const {
    if (stop == end_) return stop;
    const char* last = stop - code_point_before(stop).bytes;
    return last > p ? last : stop;
  }

  const char* next_gpt2(const char* p) const {
    if (*p == '\'') {
      if (const char* stop = contraction<false>(p)) return stop;
    }
    const char* begin = *p == ' ' && p + 1 < end_ ? p + 1 : p;
    const uint8_t kind = at(begin).kind;
    if (kind != kind_space) return run(begin, kind);
    return spaces(p, run(p, kind_space));
  }

  template <int max_digits>
  const char* next_llama3(const char* p) const {
    if (*p == '\'') {
      if (const char* stop = contraction<true>(p)) return stop;
    }
    const Char first = at(p);
    // [^\r\n\p{L}\p{N}]?\p{L}+
    if (first.kind == kind_letter) return run(p, kind_letter);
    if (first.kind == kind_number) return digits<max_digits>(p);
    const char* second = p + first.bytes;
    const uint8_t second_kind = second < end_ ? at(second).kind : kind_space;
    if (second_kind == kind_letter && !is_newline(*p)) return run(second, kind_letter);
    //  ?[^\s\p{L}\p{N}]+[\r\n]*
    if (first.kind == kind_other || (*p == ' ' && second_kind == kind_other)) {
      const char* stop = run(first.kind == kind_other ? p : second, kind_other);
      while (stop < end_ && is_newline(*stop)) ++stop;
      return stop;
    }
    // \s*[\r\n]+ ends with the last line break of the run of white space.
    const char* stop = run(p, kind_space);
    for (const char* q = stop; q > p; --q) {
      if (is_newline(q[-1])) return q;
    }
    return spaces(p, stop);
  }

  template <int max_digits>
  const char* digits(const char* p) const {
    for (int i = 0; i < max_digits && p < end_; ++i) {
      const Char c = at(p);
      if (c.kind != kind_number) break;
      p += c.bytes;
    }
    return p;
  }

  const char* end() const { return end_; }

 private:
  const char* end_;
  const CharClasses& classes_ = CharClasses::table();
};

template <typename Next>
void split_with(std::string_view text, const Scanner& scanner,
                std::vector<std::string_view>& pieces, Next&& next) {
  for (const char* p = text.data(); p < scanner.end();) {
    const char* stop = next(p);
    pieces.emplace_back(p, static_cast<size_t>(stop - p));
    p = stop;
  }
}

}  // namespace

std::string_view regex_of(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::gpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case KnownPattern::llama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case KnownPattern::qwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  return "";
}

std::optional<KnownPattern> known_pattern(std::string_view regex) {
  for (const auto pattern : {KnownPattern::gpt2, KnownPattern::llama3, KnownPattern::qwen2}) {
    if (regex == regex_of(pattern)) return pattern;
  }
  return std::nullopt;
}

void split_by(KnownPattern pattern, std::string_view text, std::vector<std::string_view>& pieces) {
  const Scanner scanner(text);
  switch (pattern) {
    case KnownPattern::gpt2:
      split_with(text, scanner, pieces, [&](const char* p) { return scanner.next_gpt2(p); });
      return;
    case KnownPattern::llama3:
      split_with(text, scanner, pieces, [&](const char* p) { return scanner.next_llama3<3>(p); });
      return;
    case KnownPattern::qwen2:
      split_with(text, scanner, pieces, [&](const char* p) { return scanner.next_llama3<1>(p); });
      return;
  }
}

}  // namespace trireme::text
