// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/pattern.h"

#include <utility>

#include "text/unicode/char_classes.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

// Appends the matches, with what lies between them.
void add_with_gaps(std::string_view text, const std::vector<Span>& matches,
                   std::vector<Span>& spans) {
  size_t done = 0;
  for (const Span& match : matches) {
    if (match.begin > done) spans.push_back({done, match.begin, false});
    spans.push_back(match);
    done = match.end;
  }
  if (done < text.size()) spans.push_back({done, text.size(), false});
}

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string literal) : literal_(std::move(literal)) {}
  void find(std::string_view text, std::vector<Span>& spans) const override {
    size_t done = 0;
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, done)) {
      if (at > done) spans.push_back({done, at, false});
      done = at + literal_.size();
      spans.push_back({at, done, true});
    }
    if (done < text.size()) spans.push_back({done, text.size(), false});
  }

 private:
  std::string literal_;
};

class RegexPattern final : public Pattern {
 public:
  explicit RegexPattern(const std::string& regex) : regex_(regex) {}
  void find(std::string_view text, std::vector<Span>& spans) const override {
    std::vector<Span> matches;
    regex_.find_all(text, matches);
    add_with_gaps(text, matches, spans);
  }

 private:
  Regex regex_;
};

class FastPattern final : public Pattern {
 public:
  explicit FastPattern(KnownPattern pattern) : pattern_(pattern) {}
  void find(std::string_view text, std::vector<Span>& spans) const override {
    std::vector<std::string_view> pieces;
    split_by(pattern_, text, pieces);
    for (const std::string_view piece : pieces) {
      const auto begin = static_cast<size_t>(piece.data() - text.data());
      spans.push_back({begin, begin + piece.size(), true});
    }
  }
  std::optional<KnownPattern> known() const override { return pattern_; }

 private:
  KnownPattern pattern_;
};

class ClassPattern final : public Pattern {
 public:
  explicit ClassPattern(uint8_t bits) : bits_(bits) {}
  void find(std::string_view text, std::vector<Span>& spans) const override {
    const CharClasses& classes = CharClasses::table();
    size_t done = 0;
    for (size_t i = 0; i < text.size();) {
      const CodePoint point = code_point_at(text.data() + i);
      const size_t next = i + point.bytes;
      if (classes.is(point.value, bits_)) {
        if (i > done) spans.push_back({done, i, false});
        spans.push_back({i, next, true});
        done = next;
      }
      i = next;
    }
    if (done < text.size()) spans.push_back({done, text.size(), false});
  }

 private:
  uint8_t bits_;
};

class WordsPattern final : public Pattern {
 public:
  void find(std::string_view text, std::vector<Span>& spans) const override {
    const CharClasses& classes = CharClasses::table();
    constexpr uint8_t bits = char_class::word | char_class::space;
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      const uint8_t kind = classes.of(code_point_at(text.data() + i).value) & bits;
      while (i < text.size()) {
        const CodePoint point = code_point_at(text.data() + i);
        if ((classes.of(point.value) & bits) != kind) break;
        i += point.bytes;
      }
      spans.push_back({begin, i, kind != char_class::space});
    }
  }
};

}  // namespace

std::unique_ptr<Pattern> literal_pattern(std::string literal) {
  return std::make_unique<LiteralPattern>(std::move(literal));
}

std::unique_ptr<Pattern> regex_pattern(const std::string& regex) {
  if (const auto known = known_pattern(regex)) return std::make_unique<FastPattern>(*known);
  return std::make_unique<RegexPattern>(regex);
}

std::unique_ptr<Pattern> class_pattern(unsigned char bits) {
  return std::make_unique<ClassPattern>(bits);
}

std::unique_ptr<Pattern> words_pattern() { return std::make_unique<WordsPattern>(); }

}  // namespace trireme::text
