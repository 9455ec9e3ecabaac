// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline/oniguruma.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/error.h"
#include "text/unicode/char_classes.h"
#include "text/unicode/utf8.h"

namespace trireme::text {

namespace {

using Ranges = std::vector<CodePointRange>;

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

Ranges intersection(const Ranges& a, const Ranges& b) {
  Ranges outside = complement(a);
  const Ranges outside_b = complement(b);
  outside.insert(outside.end(), outside_b.begin(), outside_b.end());
  return complement(union_of(std::move(outside)));
}

std::string class_text(const Ranges& ranges) {
  if (ranges.empty()) return "(?!)";
  std::string text = "[";
  for (const CodePointRange& range : ranges) {
    // A range must not span the surrogates, which are no characters.
    text += fmt::format("\\x{{{:x}}}", range.first);
    if (range.last > range.first) text += fmt::format("-\\x{{{:x}}}", range.last);
  }
  return text + "]";
}

class OnigurumaTranslator {
 public:
  explicit OnigurumaTranslator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    check_case_folding();
    while (!at_end()) step();
    if (depth_ != 0) fail("a ( without its )");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw base::ConfigError(fmt::format(
        "the regular expression '{}' has {} at byte {}; supported are groups, (?i:), look-around, "
        "classes with ranges, nesting and &&, \\s \\d \\w \\h \\b, \\p{{category or script}}, "
        "alternatives and quantifiers",
        pattern_, what, at_));
  }

  bool at_end() const { return at_ >= pattern_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool eat(std::string_view word) {
    if (!pattern_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  char32_t next_code_point() {
    const CodePoint point = code_point_at(pattern_.data() + at_);
    at_ += point.bytes;
    return point.value;
  }

  void step() {
    switch (peek()) {
      case '\\':
        escape();
        break;
      case '[':
        out_ += class_text(bracket());
        break;
      case '(':
        group();
        break;
      case ')':
        if (--depth_ < 0) fail("a ) without its (");
        out_ += pattern_[at_++];
        break;
      case '{':
        interval();
        break;
      default:
        out_ += pattern_[at_++];
    }
  }

  void group() {
    const bool is_first = out_.empty() || out_.ends_with("(") || out_.ends_with("(?:");
    ++at_;
    ++depth_;
    if (peek() == '*') fail("(*, which begins a verb of PCRE2");
    if (peek() != '?') {
      out_ += '(';
      return;
    }
    for (const std::string_view kind : {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?-i:"}) {
      if (eat(kind)) {
        out_ += '(';
        out_ += kind;
        return;
      }
    }
    // In the middle of a sequence Oniguruma gives the flag to all alternatives that follow.
    if (is_first && eat("?i)")) {
      out_ += "(?i)";
      --depth_;
      return;
    }
    fail("a group that is not supported");
  }

  // {n}, {n,}, {n,m}; Oniguruma reads {,m} as {0,m}, and {n,m}+ as a repetition of the repetition.
  void interval() {
    const size_t close = pattern_.find('}', at_);
    const std::string_view inner =
        close == std::string_view::npos ? "" : pattern_.substr(at_ + 1, close - at_ - 1);
    const bool is_interval = !inner.empty() && inner != "," &&
                             std::count(inner.begin(), inner.end(), ',') <= 1 &&
                             std::all_of(inner.begin(), inner.end(),
                                         [](char c) { return is_ascii_digit(c) || c == ','; });
    if (!is_interval) {
      out_ += "\\{";
      ++at_;
      return;
    }
    if (inner.size() > 12) fail("a repetition count that is too large");
    out_ += inner.front() == ',' ? fmt::format("{{0{}}}", inner) : fmt::format("{{{}}}", inner);
    at_ = close + 1;
    if (peek() == '+') fail("a + after {...}");
  }

  void escape() {
    const char kind = peek(1);
    if (kind == 'b' || kind == 'B') {
      at_ += 2;
      const std::string word = class_text(word_set_outside_of_class());
      out_ += kind == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                          : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
    } else if (kind == 'w' || kind == 'W') {
      at_ += 2;
      const Ranges words = word_set_outside_of_class();
      out_ += class_text(kind == 'w' ? words : complement(words));
    } else if (kind == 'A' || kind == 'z' || kind == 'Z' || kind == 'R' ||
               (kind >= '1' && kind <= '9')) {
      out_ += pattern_.substr(at_, 2);
      at_ += 2;
    } else {
      const auto set = escaped_set();
      if (set.size() == 1 && set.front().first == set.front().last) {
        out_ += fmt::format("\\x{{{:x}}}", set.front().first);
      } else {
        out_ += class_text(set);
      }
    }
  }

  static Ranges word_set() {
    const auto words = word_ranges();
    return {words.begin(), words.end()};
  }
  // Outside of a class Oniguruma has another table for Latin-1, with the superscripts and
  // fractions.
  static Ranges word_set_outside_of_class() {
    Ranges words = word_set();
    for (const uint32_t c : {0xB2U, 0xB3U, 0xB9U, 0xBCU, 0xBDU, 0xBEU}) words.push_back({c, c});
    return union_of(std::move(words));
  }

  // A backslash and what follows, inside or outside of a class. REQUIRES: peek() == '\\'.
  Ranges escaped_set() {
    ++at_;
    if (at_end()) fail("a backslash at its end");
    const char kind = peek();
    if (static_cast<unsigned char>(kind) >= 0x80) {
      const char32_t c = next_code_point();
      return {{c, c}};
    }
    ++at_;
    const auto spaces = white_space_ranges();
    const Ranges space(spaces.begin(), spaces.end());
    const Ranges hex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    switch (kind) {
      case 's':
        return space;
      case 'S':
        return complement(space);
      case 'd':
        return *property_ranges("Nd");
      case 'D':
        return complement(*property_ranges("Nd"));
      case 'w':
        return word_set();
      case 'W':
        return complement(word_set());
      case 'h':
        return hex;
      case 'H':
        return complement(hex);
      case 'p':
      case 'P':
        return property(kind == 'P');
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'a':
        return {{7, 7}};
      case 'e':
        return {{27, 27}};
      case '0':
        return {{0, 0}};
      case 'x':
      case 'u':
        return hex_escape(kind);
      default:
        break;
    }
    if (is_ascii_letter(kind) || is_ascii_digit(kind)) {
      at_ -= 2;
      fail(fmt::format("\\{}", kind));
    }
    return {{static_cast<unsigned char>(kind), static_cast<unsigned char>(kind)}};
  }

  Ranges property(bool is_negated) {
    const size_t close = pattern_.find('}', at_);
    if (peek() != '{' || close == std::string_view::npos) fail("a \\p without {name}");
    std::string_view name = pattern_.substr(at_ + 1, close - at_ - 1);
    if (name.starts_with('^')) {
      is_negated = !is_negated;
      name.remove_prefix(1);
    }
    const auto ranges = property_ranges(name);
    if (!ranges) fail(fmt::format("the property {}, which is not known", name));
    at_ = close + 1;
    return is_negated ? complement(*ranges) : *ranges;
  }

  Ranges hex_escape(char kind) {
    const bool in_braces = kind == 'x' && peek() == '{';
    if (in_braces) ++at_;
    const size_t max_digits = in_braces ? 6 : kind == 'x' ? 2 : 4;
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < max_digits; ++digits, ++at_) {
      const char c = peek();
      if (is_ascii_digit(c)) {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        value = value * 16 + static_cast<uint32_t>((c | 0x20) - 'a' + 10);
      } else {
        break;
      }
    }
    if (digits == 0 || (in_braces && peek() != '}') || (kind == 'u' && digits != 4) ||
        value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ||
        (kind == 'x' && !in_braces && value >= 0x80)) {
      fail("a malformed hexadecimal code point");
    }
    if (in_braces) ++at_;
    return {{value, value}};
  }

  // A class [...], as the set of its code points. REQUIRES: peek() == '['.
  Ranges bracket() {
    if (++nesting_ > 20) fail("classes that are nested too deep");
    ++at_;
    const bool is_negated = eat("^");
    Ranges set;
    std::optional<Ranges> left_of_and;
    const size_t first = at_;
    while (true) {
      if (at_end()) fail("a [ without its ]");
      if (peek() == ']' && at_ > first) break;
      if (pattern_.substr(at_).starts_with("[:")) fail("a POSIX class");
      if (peek() == '[') {
        const Ranges inner = bracket();
        set.insert(set.end(), inner.begin(), inner.end());
      } else if (eat("&&")) {
        set = union_of(std::move(set));
        left_of_and = left_of_and ? intersection(*left_of_and, set) : set;
        set.clear();
      } else {
        class_item(set);
      }
    }
    ++at_;
    --nesting_;
    set = union_of(std::move(set));
    if (left_of_and) set = intersection(*left_of_and, set);
    return is_negated ? complement(set) : complement(complement(set));
  }

  void class_item(Ranges& set) {
    const Ranges low = class_atom();
    const bool is_single = low.size() == 1 && low.front().first == low.front().last;
    if (peek() != '-' || peek(1) == ']' || peek(1) == '\0' || !is_single) {
      set.insert(set.end(), low.begin(), low.end());
      return;
    }
    ++at_;
    if (peek() == '[') fail("a range that ends with a class");
    const Ranges high = class_atom();
    if (high.size() != 1 || high.front().first != high.front().last ||
        high.front().first < low.front().first) {
      fail("a range whose ends are not in order");
    }
    set.push_back({low.front().first, high.front().first});
  }

  Ranges class_atom() {
    if (at_end()) fail("a [ without its ]");
    if (peek() == '\\') return escaped_set();
    const char32_t c = next_code_point();
    return {{c, c}};
  }

  // Without regard to case Oniguruma lets ss match U+00DF and so on, PCRE2 does not.
  void check_case_folding() const {
    const size_t flag = pattern_.find("(?i");
    if (flag == std::string_view::npos) return;
    std::string lower(pattern_);
    for (char& c : lower) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    for (const std::string_view pair : {"ss", "st", "ff", "fi", "fl"}) {
      if (lower.find(pair) != std::string::npos) {
        fail(fmt::format("'{}' together with (?i), which has a one-letter form", pair));
      }
    }
    if (ascii_prefix(pattern_) != pattern_.size()) fail("(?i) together with non-ASCII text");
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  int depth_ = 0;
  int nesting_ = 0;
};

}  // namespace

std::string pcre2_pattern(std::string_view oniguruma) {
  if (!is_valid_utf8(oniguruma)) {
    throw base::ConfigError("a regular expression is not valid UTF-8");
  }
  return OnigurumaTranslator(oniguruma).run();
}

}  // namespace trireme::text
