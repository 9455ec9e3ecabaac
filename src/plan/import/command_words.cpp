// SPDX-License-Identifier: Apache-2.0
#include "plan/import/command_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"

namespace trireme::plan {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool ends_command(char c) { return c == ';' || c == '&' || c == '|'; }

// The shell variables that the text defines.
class Variables {
 public:
  // Throws ConfigError if the value is unreasonably long.
  void set(const std::string& name, std::string value);
  // Returns the text with known variables replaced.
  std::string replaced(std::string_view text) const;

 private:
  std::map<std::string, std::string> values_;
};

void Variables::set(const std::string& name, std::string value) {
  constexpr size_t max_length = 1 << 16;
  if (value.size() > max_length) {
    throw base::ConfigError(
        fmt::format("flags: the value of {} has {} characters; at most {} are allowed", name,
                    value.size(), max_length));
  }
  values_[name] = std::move(value);
}

std::string Variables::replaced(std::string_view text) const {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '$') {
      result += text[at++];
      continue;
    }
    const bool has_brace = at + 1 < text.size() && text[at + 1] == '{';
    const size_t from = at + (has_brace ? 2 : 1);
    size_t end = from;
    while (end < text.size() && is_name(text[end])) ++end;
    const std::string name(text.substr(from, end - from));
    std::string_view rest;
    size_t next = end;
    if (has_brace) {
      const size_t close = text.find('}', end);
      if (close == std::string_view::npos) return result += text.substr(at);
      rest = text.substr(end, close - end);
      next = close + 1;
    }
    const auto known = values_.find(name);
    if (!name.empty() && known != values_.end()) {
      result += known->second;
    } else if (rest.starts_with(":-")) {
      result += rest.substr(2);
    } else if (!rest.starts_with("[")) {  // words of an array count where they are written
      result += text.substr(at, next - at);
    }
    at = next;
  }
  return result;
}

class Reader {
 public:
  void read(std::string_view text);
  std::vector<Flag> take() { return std::move(flags_); }

 private:
  // Reads a word from `at` on, with quotes removed and variables replaced.
  std::string word(std::string_view text, size_t& at) const;
  // Returns whether the word is NAME=value.
  bool assign(std::string_view word);
  void add(const std::string& word);

  Variables variables_;
  std::vector<Flag> flags_;
  bool is_open_ = false;    // the last flag may have more values
  bool is_inside_ = false;  // inside the value of a variable
};

std::string Reader::word(std::string_view text, size_t& at) const {
  std::string result;
  int depth = 0;  // nesting of $( and (( )), which need a shell
  while (at < text.size()) {
    const char c = text[at];
    if (depth == 0 && (is_space(c) || ends_command(c))) break;
    if (c == '\\' && at + 1 < text.size()) {
      const bool joins = text[at + 1] == '\n' || text[at + 1] == '\r';
      if (joins) break;
      result += text[at + 1];
      at += 2;
      continue;
    }
    if (c == '\'' || c == '"') {
      const size_t close = text.find(c, at + 1);
      if (close == std::string_view::npos) {
        throw base::ConfigError(
            fmt::format("flags: the quote before \"{}\" is not closed",
                        text.substr(at + 1, std::min<size_t>(40, text.size() - at - 1))));
      }
      const std::string_view inner = text.substr(at + 1, close - at - 1);
      result += c == '"' ? variables_.replaced(inner) : std::string(inner);
      at = close + 1;
      continue;
    }
    if (c == '$' && text.substr(at).starts_with("$(")) {
      depth += 1;
      result += "$(";
      at += 2;
      continue;
    }
    if (c == '$') {
      size_t end = at + 1;
      if (end < text.size() && text[end] == '{') {
        end = std::min(text.find('}', end), text.size() - 1) + 1;
      } else {
        while (end < text.size() && is_name(text[end])) ++end;
      }
      std::string value = variables_.replaced(text.substr(at, end - at));
      std::erase(value, '"');  // ${NAME:-"value"}
      result += value;
      at = end;
      continue;
    }
    if (depth > 0 && c == '(') ++depth;
    if (depth > 0 && c == ')') --depth;
    result += c;
    ++at;
    if (result.ends_with("=(") && std::all_of(result.begin(), result.end() - 2, [](char one) {
          return is_name(one) || one == '+';
        })) {
      break;
    }
  }
  return result;
}

bool Reader::assign(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  const size_t length = equals - (word[equals - 1] == '+' ? 1 : 0);
  const std::string_view name = word.substr(0, length);
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ||
      !std::all_of(name.begin(), name.end(), is_name)) {
    return false;
  }
  const std::string_view value = word.substr(equals + 1);
  is_open_ = false;
  if (value == "(") return true;
  if (value.find("--") != std::string_view::npos) {
    is_inside_ = true;
    read(value);
    is_inside_ = false;
    is_open_ = false;
    variables_.set(std::string(name), "");
  } else {
    variables_.set(std::string(name), std::string(value));
  }
  return true;
}

void Reader::add(const std::string& word) {
  const bool is_number =
      word.size() > 1 && (word[1] == '.' || std::isdigit(static_cast<unsigned char>(word[1])) != 0);
  if (!word.starts_with("-") || (is_number && word[1] != '-')) {
    if (is_open_) flags_.back().values.push_back(word);
    return;
  }
  is_open_ = word.starts_with("--") && word.size() > 2;
  if (!is_open_) return;
  const size_t equals = word.find('=');
  Flag flag{.name = word.substr(0, equals), .has_equals = equals != std::string::npos};
  std::replace(flag.name.begin(), flag.name.end(), '_', '-');
  if (flag.has_equals) flag.values.push_back(word.substr(equals + 1));
  flags_.push_back(std::move(flag));
  is_open_ = !flags_.back().has_equals;
}

void Reader::read(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (ends_command(c)) {
      is_open_ = false;
      ++at;
    } else if (is_space(c) || (c == '\\' && at + 1 < text.size() && is_space(text[at + 1]))) {
      ++at;
    } else {
      const size_t start = at;
      std::string one = word(text, at);
      if (at == start) ++at;  // a backslash at the very end
      if (!is_inside_ && assign(one)) continue;
      bool closes = false;  // NAME=(...)
      while (one.ends_with(')') &&
             std::count(one.begin(), one.end(), '(') < std::count(one.begin(), one.end(), ')')) {
        one.pop_back();
        closes = true;
      }
      // A variable may hold several words, and so may quotes around flags.
      const bool was_quoted = text[start] == '"' || text[start] == '\'';
      const bool is_one = was_quoted && !one.starts_with("--");
      if (!is_one && one.find(' ') != std::string::npos && one.find("$(") == std::string::npos) {
        size_t from = 0;
        while (from < one.size()) {
          const size_t space = std::min(one.find(' ', from), one.size());
          if (space > from) add(one.substr(from, space - from));
          from = space + 1;
        }
      } else if (!one.empty() && one != "(") {
        add(one);
      }
      if (closes) is_open_ = false;
    }
  }
}

}  // namespace

std::vector<Flag> flags_of(std::string_view text) {
  Reader reader;
  reader.read(text);
  return reader.take();
}

}  // namespace trireme::plan
