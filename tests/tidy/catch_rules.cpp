// SPDX-License-Identifier: Apache-2.0
// Rule about handlers of exceptions: an error that is dropped has a reason, and an error of a
// format is never dropped without a statement.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "rules.h"

namespace trireme::tidy {

namespace {

// Offsets in the code: of the keyword, of both parentheses and of both braces.
struct Handler {
  size_t keyword, open, close, begin, end;
};

size_t next_code(std::string_view code, size_t from) {
  return std::min(code.find_first_not_of(" \t\r\n", from), code.size());
}

// Returns the offset of the bracket that closes the one at `open`, or npos.
size_t closing(std::string_view code, size_t open) {
  const char opens = code[open], closes = opens == '(' ? ')' : '}';
  int depth = 0;
  for (size_t i = open; i < code.size(); ++i) {
    if (code[i] == opens) ++depth;
    if (code[i] == closes && --depth == 0) return i;
  }
  return std::string_view::npos;
}

// Returns the offset of the bracket that opens the one at `close`, or npos.
size_t opening(std::string_view code, size_t close) {
  const char closes = code[close], opens = closes == ')' ? '(' : '{';
  int depth = 0;
  for (size_t i = close + 1; i-- > 0;) {
    if (code[i] == closes) ++depth;
    if (code[i] == opens && --depth == 0) return i;
  }
  return std::string_view::npos;
}

bool is_word_at(std::string_view code, size_t at, std::string_view word) {
  const size_t end = at + word.size();
  return code.compare(at, word.size(), word) == 0 && (at == 0 || !is_word(code[at - 1])) &&
         (end >= code.size() || !is_word(code[end]));
}

std::optional<Handler> handler_at(std::string_view code, size_t keyword) {
  Handler h{.keyword = keyword};
  h.open = next_code(code, keyword + 5);
  if (h.open == code.size() || code[h.open] != '(') return std::nullopt;
  h.close = closing(code, h.open);
  if (h.close == std::string_view::npos) return std::nullopt;
  h.begin = next_code(code, h.close + 1);
  if (h.begin == code.size() || code[h.begin] != '{') return std::nullopt;
  h.end = closing(code, h.begin);
  if (h.end == std::string_view::npos) return std::nullopt;
  return h;
}

// Returns the code between the braces of the try block that the handler at `keyword` belongs to;
// other handlers may stand between them.
std::string_view guarded_code(std::string_view code, size_t keyword) {
  for (size_t at = keyword; at > 0;) {
    const size_t end = code.find_last_not_of(" \t\r\n", at - 1);
    if (end == std::string_view::npos || code[end] != '}') return {};
    const size_t begin = opening(code, end);
    if (begin == std::string_view::npos || begin == 0) return {};
    const size_t before = code.find_last_not_of(" \t\r\n", begin - 1);
    if (before == std::string_view::npos) return {};
    if (before >= 2 && is_word_at(code, before - 2, "try")) {
      return code.substr(begin + 1, end - begin - 1);
    }
    if (code[before] != ')') return {};
    const size_t parenthesis = opening(code, before);
    if (parenthesis == std::string_view::npos) return {};
    at = code.rfind("catch", parenthesis);
    if (at == std::string_view::npos) return {};
  }
  return {};
}

// Does the code read a format: JSON, TOML, or what a function called parse reads?
bool reads_a_format(std::string_view code) {
  for (const Identifier& identifier : identifiers_of(code)) {
    const std::string& name = identifier.name;
    if (name == "Json" || name == "toml" || name.starts_with("parse") ||
        name.ends_with("from_json") || name == "read_manifest") {
      return true;
    }
  }
  return false;
}

// Returns the name of the exception in the parentheses, or "": the last of several words.
std::string exception_name(std::string_view parameter) {
  const auto words = identifiers_of(parameter);
  if (words.empty() || words.back().before == "::" || words.back().before == "const" ||
      words.back().before.empty()) {
    return "";
  }
  return words.back().name;
}

bool uses_the_error(std::string_view body, const std::string& name) {
  for (const Identifier& identifier : identifiers_of(body)) {
    if (identifier.name == "throw" || identifier.name == "current_exception" ||
        (!name.empty() && identifier.name == name)) {
      return true;
    }
  }
  return false;
}

// Does the body have nothing but one jump: return, continue or break?
bool only_leaves(std::string_view body) {
  const auto words = identifiers_of(body);
  return !words.empty() &&
         (words[0].name == "return" || words[0].name == "continue" || words[0].name == "break") &&
         std::count(body.begin(), body.end(), ';') == 1;
}

}  // namespace

Problems check_dropped_errors(const SourceFile& file) {
  Problems problems;
  if (!is_source(file.path)) return problems;
  const std::string code = code_of(file.text), with_literals = without_comments(file.text);
  for (size_t at = code.find("catch"); at != std::string::npos; at = code.find("catch", at + 1)) {
    const auto handler = is_word_at(code, at, "catch") ? handler_at(code, at) : std::nullopt;
    if (!handler) continue;
    const auto [keyword, open, close, begin, end] = *handler;
    const std::string_view parameter = std::string_view(code).substr(open + 1, close - open - 1);
    const std::string_view body = std::string_view(code).substr(begin + 1, end - begin - 1);
    if (uses_the_error(body, exception_name(parameter))) continue;
    const auto line = 1 + std::count(code.begin(), code.begin() + static_cast<long>(at), '\n');
    const bool is_empty = body.find_first_not_of(" \t\r\n") == std::string_view::npos;
    const bool has_reason =
        file.text.compare(open, end - open, with_literals, open, end - open) != 0;
    if (is_empty && (reads_a_format(parameter) || reads_a_format(guarded_code(code, at)))) {
      problems.push_back(
          fmt::format("{}:{}: an empty handler hides an error of a format; report it, or return "
                      "a result in the handler and state the reason in a comment there",
                      file.path, line));
    } else if (!has_reason && (is_empty || only_leaves(body))) {
      problems.push_back(
          fmt::format("{}:{}: the handler drops its error; use it, throw, or state in a comment "
                      "inside of the handler why it may be dropped",
                      file.path, line));
    }
  }
  return problems;
}

}  // namespace trireme::tidy
