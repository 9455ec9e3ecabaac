// SPDX-License-Identifier: Apache-2.0
#include "board/series/line_scanner.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/text/json.h"

namespace trireme::board {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
// Steps and times beyond these are damage: they would overflow when they are subtracted.
constexpr double max_step = 9007199254740992.0;
constexpr double max_time = 1e12;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Returns the value of a text that stands for a number that JSON does not have.
bool special_value(std::string_view text, double& value) {
  if (text == "NaN") return value = nan, true;
  if (text == "Infinity") return value = infinity, true;
  if (text == "-Infinity") return value = -infinity, true;
  return false;
}

}  // namespace

struct LineScanner::Cursor {
  const char* at;
  const char* end;

  void skip_space() {
    while (at < end && is_space(*at)) ++at;
  }
  bool take(char c) {
    skip_space();
    if (at == end || *at != c) return false;
    ++at;
    return true;
  }
  // Takes a string and returns its content with escapes. The cursor is at the opening quote.
  bool take_string(std::string_view& raw) {
    const char* begin = ++at;
    while (true) {
      at = static_cast<const char*>(std::memchr(at, '"', static_cast<size_t>(end - at)));
      if (at == nullptr) return false;
      const char* before = at;
      while (before > begin && before[-1] == '\\') --before;
      if ((at - before) % 2 == 0) break;
      ++at;
    }
    raw = {begin, static_cast<size_t>(at - begin)};
    ++at;
    return true;
  }
  bool take_word(std::string_view word) {
    if (static_cast<size_t>(end - at) < word.size() || std::string_view(at, word.size()) != word) {
      return false;
    }
    at += word.size();
    return true;
  }
  // Skips an object or array. Brackets are counted, not matched by kind.
  bool skip_nested() {
    int depth = 0;
    while (at < end) {
      const char c = *at;
      if (c == '"') {
        std::string_view ignored;
        if (!take_string(ignored)) return false;
        continue;
      }
      ++at;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) return true;
    }
    return false;
  }
};

int LineScanner::tag_of(std::string_view name) {
  const auto [found, is_new] =
      index_.try_emplace(std::string(name), static_cast<int>(tags_.size()));
  if (is_new) tags_.emplace_back(name);
  return found->second;
}

// Returns the tag of a key as it stands in the line; -1: none.
int LineScanner::tag_at(std::string_view raw_key, size_t place) {
  if (place < expected_.size() && expected_[place].first == raw_key) return expected_[place].second;
  std::string name;
  if (!unescape(raw_key, name)) return -1;
  const auto found = index_.find(name);
  if (found == index_.end() && std::ssize(tags_) >= max_tags) return -1;
  const int tag = found != index_.end() ? found->second : tag_of(name);
  if (place >= expected_.size()) expected_.resize(place + 1, {std::string(), -1});
  expected_[place] = {std::string(raw_key), tag};
  return tag;
}

bool LineScanner::scan(std::string_view line, ScannedLine& out) {
  Cursor in{line.data(), line.data() + line.size()};
  out.has_step = false;
  out.step = out.attempt = 0;
  out.time = 0;
  out.kind = out.time_digits = {};
  out.values.clear();
  if (!in.take('{')) return false;
  in.skip_space();
  size_t place = 0;
  bool is_first = true;
  while (!in.take('}')) {
    if (!is_first && !in.take(',')) return false;
    is_first = false;
    in.skip_space();
    std::string_view key;
    if (in.at == in.end || *in.at != '"' || !in.take_string(key) || !in.take(':')) return false;
    in.skip_space();
    if (in.at == in.end) return false;
    const char first = *in.at;
    ScannedValue found;
    if (first == '"') {
      if (!in.take_string(found.digits)) return false;
      if (key == "kind") out.kind = found.digits;
      if (!special_value(found.digits, found.value)) continue;
    } else if (first == '{' || first == '[') {
      if (!in.skip_nested()) return false;
      continue;
    } else if (first == 't' || first == 'f') {
      if (!in.take_word(first == 't' ? "true" : "false")) return false;
      continue;
    } else if (first == 'n') {
      if (!in.take_word("null")) return false;
      found.value = nan;
      found.digits = "null";
    } else {
      // JSON numbers begin with a digit or a minus; from_chars would also accept "inf".
      if (first != '-' && (first < '0' || first > '9')) return false;
      const auto [end, error] = std::from_chars(in.at, in.end, found.value);
      if (error == std::errc::invalid_argument || end == in.at) return false;
      found.digits = {in.at, static_cast<size_t>(end - in.at)};
      if (error == std::errc::result_out_of_range) {
        const bool is_small = found.digits.find("e-") != std::string_view::npos ||
                              found.digits.find("E-") != std::string_view::npos;
        found.value = is_small ? 0 : first == '-' ? -infinity : infinity;
      }
      in.at = end;
    }
    if (key == "step" || key == "attempt") {
      if (!(std::abs(found.value) <= max_step)) return false;
      (key == "step" ? out.step : out.attempt) = static_cast<int64_t>(found.value);
      out.has_step = out.has_step || key == "step";
    } else if (key == "time") {
      if (!(std::abs(found.value) <= max_time)) return false;
      out.time = found.value;
      out.time_digits = found.digits;
    } else if ((found.tag = tag_at(key, place++)) >= 0) {
      out.values.push_back(found);
    }
  }
  in.skip_space();
  return in.at == in.end;
}

bool unescape(std::string_view raw, std::string& out) {
  bool is_plain = true;
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    is_plain = is_plain && byte >= 0x20 && byte < 0x80 && c != '\\';
  }
  if (is_plain) {
    out = raw;
    return true;
  }
  const base::Json text =
      base::Json::parse("\"" + std::string(raw) + "\"", nullptr, /*allow_exceptions=*/false);
  if (text.is_string()) {
    out = text.get<std::string>();
    return true;
  }
  // Invalid UTF-8 is shown with replacements.
  const std::string replaced =
      base::Json(std::string(raw)).dump(-1, ' ', false, base::Json::error_handler_t::replace);
  const base::Json again = base::Json::parse(replaced, nullptr, false);
  if (!again.is_string()) return false;
  out = again.get<std::string>();
  return true;
}

}  // namespace trireme::board
