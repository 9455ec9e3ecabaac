// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/run_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/printable.h"
#include "board/run/flat_config.h"
#include "board/run/secrets.h"

namespace trireme::cli {
namespace {

constexpr std::string_view search_columns[] = {
    "name",  "state", "loss",  "validation", "speed", "mfu",    "cost", "step",
    "steps", "age",   "begin", "group",      "tags",  "folder", "lamp", "sentence"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Returns the number that the whole text is; none for NaN, which is neither less nor more.
std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value)) return {};
  return value;
}

std::optional<std::string> text_of(const std::optional<double>& value) {
  if (!value) return {};
  return fmt::format("{}", *value);
}

std::optional<std::string> text_or_none(std::string_view text) {
  if (text.empty()) return {};
  return std::string(text);
}

template <typename Value>
bool is_ordered(const Value& left, std::string_view op, const Value& right) {
  if (op == "=") return left == right;
  if (op == "!=") return left != right;
  if (op == "<") return left < right;
  if (op == "<=") return left <= right;
  if (op == ">") return left > right;
  return left >= right;
}

bool holds(const std::optional<std::string>& value, std::string_view op,
           const std::string& wanted) {
  if (!value) return op == "!=";
  if (op == "~") return lower(*value).find(lower(wanted)) != std::string::npos;
  const std::optional<double> left = number_of(*value), right = number_of(wanted);
  if (left && right) return is_ordered(*left, op, *right);
  return is_ordered(lower(*value), op, lower(wanted));
}

// Returns the parts between spaces; quotes keep spaces, and are left out.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  std::string part;
  bool is_quoted = false;
  for (const char c : text) {
    if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ' ' && !is_quoted) {
      if (!part.empty()) parts.push_back(std::exchange(part, ""));
    } else {
      part += c;
    }
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

SearchedRun searched_run(const RunSummary& s, std::optional<double> dollars) {
  SearchedRun out;
  for (auto& [key, text] : board::flat_config(board::masked(s.run.config))) {
    out.values.emplace(key, text);
  }
  const auto count = [](int64_t value) { return fmt::format("{}", value); };
  const std::optional<double> begin =
      s.run.begin_time > 0 ? std::optional(s.run.begin_time) : std::nullopt;
  out.values["name"] = s.run.name;
  out.values["state"] = std::string(name_of(s.run.state));
  out.values["loss"] = text_of(s.loss);
  out.values["validation"] = text_of(s.validation_loss);
  out.values["speed"] = text_of(s.tokens_per_second);
  out.values["mfu"] = text_of(s.mfu_percent);
  out.values["cost"] = text_of(dollars);
  out.values["step"] = count(s.run.last_step);
  out.values["steps"] =
      s.run.total_steps > 0 ? std::optional(count(s.run.total_steps)) : std::nullopt;
  out.values["age"] = text_of(s.age_seconds);
  out.values["begin"] = text_of(begin);
  out.values["group"] = text_or_none(s.run.group);
  out.values["folder"] = s.run.folder.string();
  out.values["lamp"] = text_or_none(s.diagnosis.lamp);
  out.values["sentence"] = text_or_none(s.diagnosis.sentence);
  const auto tags = out.values.find("job.tags");
  out.values["tags"] = tags == out.values.end() ? std::nullopt : tags->second;
  for (const char* name : {"name", "group", "tags", "folder", "state", "sentence"}) {
    out.words += lower(out.values[name].value_or("")) + '\n';
  }
  return out;
}

RunSearch::RunSearch(std::string_view text) {
  for (const std::string& part : parts_of(text)) {
    const size_t at = part.find_first_of("=<>!~");
    if (at == std::string::npos || at == 0) {
      conditions_.push_back({.name = "", .op = "", .wanted = lower(part)});
      continue;
    }
    const bool is_long = at + 1 < part.size() && part[at + 1] == '=' && part[at] != '~';
    Condition one{.name = part.substr(0, at),
                  .op = part.substr(at, is_long ? 2 : 1),
                  .wanted = part.substr(at + (is_long ? 2 : 1))};
    if (one.op == "==") one.op = "=";
    if (one.op == "!" || one.wanted.find_first_of("=<>!~") == 0 || one.wanted.empty()) {
      throw base::ConfigError(fmt::format(
          "--filter: '{}' must be a word, or a name, one of = != < <= > >= ~ and a value, as in "
          "loss<3",
          base::printable(part)));
    }
    conditions_.push_back(std::move(one));
  }
}

bool RunSearch::names(std::string_view column) const {
  return std::ranges::any_of(conditions_, [&](const Condition& one) { return one.name == column; });
}

void RunSearch::resolve(const std::vector<SearchedRun>& runs) {
  for (Condition& one : conditions_) {
    if (!one.name.empty()) one.name = whole_name(one.name, runs, "--filter");
  }
}

bool RunSearch::finds(const SearchedRun& run) const {
  return std::ranges::all_of(conditions_, [&](const Condition& one) {
    if (one.name.empty()) return run.words.find(one.wanted) != std::string::npos;
    const auto found = run.values.find(one.name);
    return holds(found == run.values.end() ? std::nullopt : found->second, one.op, one.wanted);
  });
}

std::string whole_name(const std::string& name, const std::vector<SearchedRun>& runs,
                       std::string_view option) {
  if (std::ranges::find(search_columns, name) != std::end(search_columns)) return name;
  std::vector<std::string> found;
  for (const SearchedRun& run : runs) {
    for (const auto& [key, value] : run.values) {
      if (key == name) return name;
      if (key.ends_with("." + name) && std::ranges::find(found, key) == found.end()) {
        found.push_back(key);
      }
    }
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    throw base::ConfigError(fmt::format("{}: {} may be {}; write the whole key", option,
                                        base::printable(name), fmt::join(found, ", ")));
  }
  throw base::ConfigError(
      fmt::format("{}: {} is neither a key in the configuration of a run, such as optimizer.lr, "
                  "nor one of {}",
                  option, base::printable(name), fmt::join(search_columns, ", ")));
}

std::vector<size_t> order_of(const std::vector<SearchedRun>& runs, const std::string& name,
                             bool is_reverse) {
  struct Key {
    int kind = 2;  // 0: a number, 1: a text, 2: no value
    double number = 0;
    std::string text;
    bool operator<(const Key& other) const {
      if (kind != other.kind) return kind < other.kind;
      return kind == 0 ? number < other.number : text < other.text;
    }
  };
  std::vector<Key> keys;
  for (const SearchedRun& run : runs) {
    const auto found = run.values.find(name);
    Key key;
    if (found != run.values.end() && found->second) {
      const std::optional<double> number = number_of(*found->second);
      key = {.kind = number ? 0 : 1, .number = number.value_or(0), .text = lower(*found->second)};
    }
    keys.push_back(std::move(key));
  }
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const bool is_known = keys[a].kind < 2 && keys[b].kind < 2;
    return is_reverse && is_known ? keys[b] < keys[a] : keys[a] < keys[b];
  });
  return order;
}

}  // namespace trireme::cli
