// SPDX-License-Identifier: Apache-2.0
#include "data/readers/json_fields.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/text/json.h"
#include "data/files/utf8.h"
#include "data/readers/json_text.h"

namespace trireme::data {

namespace {

std::string top_level_keys(std::string_view line) {
  constexpr size_t max_listed = 12;
  std::vector<std::string> keys;
  const base::Json object = base::Json::parse(line, nullptr, false);
  if (!object.is_object()) return "none";
  for (const auto& item : object.items()) {
    if (keys.size() == max_listed) {
      keys.emplace_back("...");
      break;
    }
    keys.push_back(item.key());
  }
  return keys.empty() ? "none" : fmt::format("{}", fmt::join(keys, ", "));
}

struct SyntaxError {
  const char* at;
  std::string what;
};

}  // namespace

// Walks over one line. Bit p of a mask is set while the keys so far are the first ones of path p.
class JsonScanner {
 public:
  JsonScanner(JsonFields& fields, std::string_view line)
      : fields_(fields), at_(line.data()), end_(line.data() + line.size()) {}

  // Throws SyntaxError.
  void object_line() {
    if (std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(byte_order_mark)) {
      at_ += byte_order_mark.size();
    }
    skip_space();
    if (at_ == end_ || *at_ != '{')
      throw SyntaxError{at_, expected("an object, which begins with {")};
    object((1U << fields_.paths_.size()) - 1, 0);
    skip_space();
    if (at_ != end_) throw SyntaxError{at_, expected("the end of the line")};
  }

 private:
  void object(unsigned mask, size_t depth) {
    enter(depth);
    skip_space();
    if (take('}')) return;
    do {
      skip_space();
      if (at_ == end_ || *at_ != '"') throw SyntaxError{at_, expected("a key in quotes")};
      const std::string_view key = string(fields_.key_);
      unsigned prefix = 0, target = 0;
      for (size_t p = 0; mask >> p != 0; ++p) {
        const auto& keys = fields_.paths_[p].keys;
        if ((mask >> p & 1U) == 0 || keys[depth] != key) continue;
        (depth + 1 == keys.size() ? target : prefix) |= 1U << p;
      }
      skip_space();
      if (!take(':')) throw SyntaxError{at_, expected("':' after a key")};
      skip_space();
      if (target != 0) {
        target_value(target, prefix, depth + 1);
      } else {
        value(prefix, depth + 1);
      }
      skip_space();
    } while (take(','));
    if (!take('}')) throw SyntaxError{at_, expected("',' or '}' after a value")};
  }

  void array(size_t depth) {
    enter(depth);
    skip_space();
    if (take(']')) return;
    do {
      skip_space();
      value(0, depth + 1);
      skip_space();
    } while (take(','));
    if (!take(']')) throw SyntaxError{at_, expected("',' or ']' after a value")};
  }

  // A value that is a chosen field.
  void target_value(unsigned target, unsigned prefix, size_t depth) {
    const auto p = static_cast<size_t>(std::countr_zero(target));
    JsonFields::Field& field = fields_.fields_[p];
    ++field.found;
    if (at_ < end_ && *at_ == '"') {
      field.other = {};
      field.value = string(field.unescaped);
    } else {
      const char* start = at_;
      value(prefix, depth);
      field.other = type_at(*start);
    }
    // The same path may be chosen twice.
    for (size_t other = p + 1; target >> other != 0; ++other) {
      if ((target >> other & 1U) == 0) continue;
      fields_.fields_[other].found = field.found;
      fields_.fields_[other].value = field.value;
      fields_.fields_[other].other = field.other;
    }
  }

  void value(unsigned mask, size_t depth) {
    if (at_ == end_) throw SyntaxError{at_, expected("a value")};
    switch (*at_) {
      case '{':
        return object(mask, depth);
      case '[':
        return array(depth);
      case '"':
        return skip_string();
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  // Takes the opening bracket.
  void enter(size_t depth) {
    if (depth >= max_json_depth) {
      throw SyntaxError{at_, fmt::format("nested deeper than {} levels", max_json_depth)};
    }
    ++at_;
  }

  void skip_string() {
    ++at_;
    while (true) {
      at_ = string_special(at_, end_);
      if (take('"')) return;
      escape();
    }
  }

  // Returns the string without escapes, in `buffer` if it has any.
  std::string_view string(std::string& buffer) {
    const char* start = ++at_;
    at_ = string_special(at_, end_);
    if (take('"')) return {start, static_cast<size_t>(at_ - 1 - start)};
    buffer.assign(start, at_);
    while (true) {
      append_utf8(buffer, escape());
      start = at_;
      at_ = string_special(at_, end_);
      buffer.append(start, at_);
      if (take('"')) return buffer;
    }
  }

  // Takes an escape sequence and returns its character.
  uint32_t escape() {
    if (at_ == end_) throw SyntaxError{at_, "the line ends inside a string"};
    if (*at_ != '\\') {
      throw SyntaxError{at_, fmt::format("control character 0x{:02x} inside a string; it must be "
                                         "escaped",
                                         static_cast<unsigned char>(*at_))};
    }
    const char* start = at_++;
    constexpr std::string_view letters = "\"\\/bfnrt", characters = "\"\\/\b\f\n\r\t";
    if (at_ == end_) throw SyntaxError{at_, "the line ends inside a string"};
    const char letter = *at_++;
    if (const size_t index = letters.find(letter); index != std::string_view::npos) {
      return static_cast<unsigned char>(characters[index]);
    }
    if (letter != 'u') throw SyntaxError{start, "an escape that JSON does not have"};
    const uint32_t first = hex4(start);
    if (first < 0xd800 || first > 0xdfff) return first;
    if (first < 0xdc00 && end_ - at_ >= 2 && at_[0] == '\\' && at_[1] == 'u') {
      at_ += 2;
      const uint32_t second = hex4(start);
      if (second >= 0xdc00 && second <= 0xdfff) {
        return 0x10000 + ((first - 0xd800) << 10U) + (second - 0xdc00);
      }
    }
    throw SyntaxError{start, "half of a surrogate pair"};
  }

  uint32_t hex4(const char* start) {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < end_ ? *at_ : '\0';
      const uint32_t digit = c >= '0' && c <= '9'   ? static_cast<uint32_t>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                             : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                                    : 16U;
      if (digit == 16) throw SyntaxError{start, "\\u without four hexadecimal digits"};
      code = code << 4U | digit;
    }
    return code;
  }

  void number() {
    const char* start = at_;
    take('-');
    if (!take('0') && digits() == 0) throw SyntaxError{start, expected_at(start, "a value")};
    if (take('.') && digits() == 0) throw SyntaxError{at_, expected("a digit after '.'")};
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (digits() == 0) throw SyntaxError{at_, expected("a digit of the exponent")};
    }
  }

  size_t digits() {
    const char* start = at_;
    while (at_ < end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return static_cast<size_t>(at_ - start);
  }

  void word(std::string_view text) {
    if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(text)) {
      throw SyntaxError{at_, expected("a value")};
    }
    at_ += text.size();
  }

  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }

  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  std::string expected(std::string_view what) const { return expected_at(at_, what); }
  std::string expected_at(const char* at, std::string_view what) const {
    if (at == end_) return fmt::format("expected {}, found the end of the line", what);
    const auto c = static_cast<unsigned char>(*at);
    return c >= 0x20 && c < 0x7f ? fmt::format("expected {}, found '{}'", what, *at)
                                 : fmt::format("expected {}, found the byte 0x{:02x}", what, c);
  }

  static std::string_view type_at(char c) {
    switch (c) {
      case '{':
        return "object";
      case '[':
        return "array";
      case 't':
      case 'f':
        return "boolean";
      case 'n':
        return "null";
      default:
        return "number";
    }
  }

  JsonFields& fields_;
  const char* at_;
  const char* end_;
};

std::string FieldPath::text() const { return fmt::format("{}", fmt::join(keys, ".")); }

FieldPath field_path(std::string_view path) {
  FieldPath result;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    result.keys.emplace_back(path.substr(begin, dot - begin));
    if (result.keys.back().empty()) {
      throw base::ConfigError(fmt::format(
          "the field '{}' has an empty key; give one key, or several with dots, such as text or "
          "meta.text",
          path));
    }
    begin = dot + 1;
  }
  return result;
}

JsonFields::JsonFields(std::vector<FieldPath> paths)
    : paths_(std::move(paths)), fields_(paths_.size()) {
  TRIREME_CHECK(!paths_.empty() && paths_.size() <= 2, "{} paths", paths_.size());
}

std::optional<Rejection> JsonFields::read(std::string_view line) {
  for (Field& field : fields_) {
    field.found = 0;
    field.other = {};
  }
  if (const auto bad = first_invalid_utf8(std::as_bytes(std::span(line)))) {
    return Rejection{RejectReason::invalid_utf8,
                     fmt::format("byte 0x{:02x} at column {} is not UTF-8{}",
                                 static_cast<unsigned char>(line[*bad]), *bad + 1,
                                 utf16_hint(std::as_bytes(std::span(line))))};
  }
  try {
    JsonScanner(*this, line).object_line();
  } catch (const SyntaxError& error) {
    return Rejection{RejectReason::json_error,
                     fmt::format("column {}: {}", error.at - line.data() + 1, error.what)};
  }
  for (size_t p = 0; p < paths_.size(); ++p) {
    const Field& field = fields_[p];
    if (field.found == 0) {
      return Rejection{
          RejectReason::wrong_field,
          fmt::format("no field \"{}\"; found: {}", paths_[p].text(), top_level_keys(line))};
    }
    if (field.found > 1) {
      return Rejection{RejectReason::wrong_field, fmt::format("the field \"{}\" occurs {} times",
                                                              paths_[p].text(), field.found)};
    }
    if (!field.other.empty()) {
      return Rejection{RejectReason::wrong_field,
                       fmt::format("the field \"{}\" has the type {}; allowed: string",
                                   paths_[p].text(), field.other)};
    }
  }
  return std::nullopt;
}

}  // namespace trireme::data
