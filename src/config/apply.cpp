// SPDX-License-Identifier: Apache-2.0
#include "config/apply.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/text/count_text.h"
#include "config/numbers/scaled_number.h"
#include "config/spelling.h"

namespace trireme::config {
namespace {

const Key* find(const std::vector<Key>& keys, std::string_view section, std::string_view name);
std::string unknown_section(const Entry& entry, const std::vector<Key>& keys);
std::string unknown_key(const Entry& entry, const std::vector<Key>& keys);
std::vector<std::string_view> sections_of(const std::vector<Key>& keys);
std::string found_text(const Value& value);
std::string shown(std::string_view text);
std::optional<std::string> store(const Value& value, const Key& key);
Value value_from_text(const std::string& text, const Key& key);

template <typename T>
std::optional<T> number_from(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads "0,3,5" or "[0, 3, 5]"; returns none for another text.
std::optional<std::vector<int64_t>> numbers_from(std::string_view text);

}  // namespace

void Report::add(const std::string& where, const std::string& problem) {
  problems_.push_back(fmt::format("{}: {}", where, problem));
}

void Report::add_bad_key(const std::string& path, const std::string& where,
                         const std::string& problem) {
  bad_.insert(path);
  add(where, problem);
}

std::string Report::where(const std::string& path) const {
  const auto found = where_.find(path);
  return found == where_.end() ? "default" : found->second;
}

void Report::blame(const std::vector<std::string>& paths, const std::string& problem) {
  for (const std::string& path : paths) {
    if (is_bad(path)) return;
  }
  // The problem is reported at a key that the user gave, not at a default.
  std::string blamed = paths.front();
  for (const std::string& path : paths) {
    if (was_given(blamed)) break;
    if (was_given(path)) blamed = path;
  }
  add(where(blamed), problem);
}

void Report::throw_if_any(const std::string& what) const {
  if (problems_.empty()) return;
  throw base::ConfigError(fmt::format("{}: {}\n  {}", what,
                                      base::count_text(std::ssize(problems_), "problem"),
                                      fmt::join(problems_, "\n  ")));
}

void apply(const std::vector<Entry>& entries, const std::vector<Key>& keys, const std::string& file,
           Report& report) {
  const std::vector<std::string_view> sections = sections_of(keys);
  const auto is_section = [&](std::string_view name) {
    return !name.empty() && std::find(sections.begin(), sections.end(), name) != sections.end();
  };
  std::set<std::string> reported;  // unknown sections, each once
  for (const Entry& entry : entries) {
    const bool in_top = entry.section.empty() && !entry.is_section_start;
    if (!in_top && !is_section(entry.section)) {
      if (reported.insert(entry.section).second) {
        report.add(entry.where, unknown_section(entry, keys));
      }
      continue;
    }
    if (entry.is_section_start) continue;
    if (in_top && is_section(entry.key)) {
      report.add(entry.where, fmt::format("{}: found {}, expected the section [{}]", entry.key,
                                          found_text(entry.value), entry.key));
      continue;
    }
    const Key* key = find(keys, entry.section, entry.key);
    if (key == nullptr) {
      report.add(entry.where, unknown_key(entry, keys));
      continue;
    }
    report.remember(key->path(), entry.where);
    if (const auto problem = store(entry.value, *key)) {
      report.add_bad_key(key->path(), entry.where, *problem);
    }
  }
  for (const Key& key : keys) {
    if (key.is_required && !report.was_given(key.path())) {
      report.add_bad_key(key.path(), file,
                         fmt::format("{}: required, but not given ({})", key.path(), key.help));
    }
  }
}

namespace {

bool looks_like_file(std::string_view word) {
  return !word.starts_with("-") && (word.ends_with(".toml") || word.ends_with(".json"));
}

}  // namespace

std::vector<Entry> entries_of_overrides(const std::vector<std::string>& overrides,
                                        const std::vector<Key>& keys, Report& report) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < overrides.size(); ++i) {
    const std::string& given = overrides[i];
    const bool has_dashes = given.starts_with("--");
    const std::string body = has_dashes ? given.substr(2) : given;
    const size_t equals = body.find('=');
    const std::string path = body.substr(0, equals);
    // Elements of lists have a dot in their section: "training.dataset[0].weight".
    const size_t dot = path.find("].") != std::string::npos ? path.rfind('.') : path.find('.');
    Entry entry{.section = dot == std::string::npos ? "" : path.substr(0, dot),
                .key = dot == std::string::npos ? path : path.substr(dot + 1),
                .value = {},
                .where = "override " + shown(given)};
    const Key* key = find(keys, entry.section, entry.key);
    const bool is_switch = key != nullptr && std::holds_alternative<bool*>(key->field);
    std::optional<std::string> text;
    if (equals != std::string::npos) {
      text = body.substr(equals + 1);
    } else if (has_dashes && i + 1 < overrides.size() && !overrides[i + 1].starts_with("--") &&
               (!is_switch || overrides[i + 1] == "true" || overrides[i + 1] == "false")) {
      text = overrides[++i];
      entry.where += " " + shown(*text);
    } else if (has_dashes && is_switch) {
      text = "true";
    }
    if (path.empty() || !text) {
      report.add(entry.where,
                 !path.empty() && has_dashes && dot == std::string::npos
                     ? "not an option; a key is set by --section.key=value"
                 : looks_like_file(given)
                     ? "a second configuration: give one file, and set keys by --section.key=value"
                     : "no value; write --section.key=value");
      continue;
    }
    entry.value = key == nullptr ? Value(*text) : value_from_text(*text, *key);
    entries.push_back(std::move(entry));
  }
  return entries;
}

namespace {

const Key* find(const std::vector<Key>& keys, std::string_view section, std::string_view name) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const Key& key) {
    return key.section == section && key.name == name;
  });
  return found == keys.end() ? nullptr : &*found;
}

std::vector<std::string_view> sections_of(const std::vector<Key>& keys) {
  std::vector<std::string_view> sections;
  for (const Key& key : keys) {
    if (sections.empty() || sections.back() != key.section) sections.push_back(key.section);
  }
  return sections;
}

// Shortens names, which may be anything in a file, and keeps them on one line.
std::string shown(std::string_view text) {
  constexpr size_t longest = 200;
  std::string result;
  for (const char c : text.substr(0, longest)) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    result += is_control ? '?' : c;
  }
  if (text.size() > longest) result += "...";
  return result;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  const auto best = nearest(word, candidates);
  return best ? fmt::format("; did you mean '{}'?", *best) : "";
}

// Without the elements of lists.
std::vector<std::string_view> named_sections(const std::vector<Key>& keys) {
  std::vector<std::string_view> sections = sections_of(keys);
  std::erase_if(sections, [](std::string_view section) { return section.ends_with(']'); });
  return sections;
}

// A list that does not exist, or an element of one that has fewer.
std::string unknown_list(const Entry& entry, const std::vector<Key>& keys) {
  const std::string name = entry.section.substr(0, entry.section.rfind('['));
  std::vector<std::string_view> names;
  for (const List& list : lists()) {
    names.push_back(list.name);
    if (list.name != name) continue;
    const auto sections = sections_of(keys);
    const auto count = std::count_if(sections.begin(), sections.end(), [&](std::string_view one) {
      return one.starts_with(name + "[");
    });
    return fmt::format("{}: there are {} tables [[{}]], counted from 0", shown(entry.section),
                       count, name);
  }
  for (const std::string_view section : named_sections(keys)) {
    if (section == name) {
      return fmt::format("{}: found an array, expected the section [{}]", name, name);
    }
  }
  return fmt::format("[[{}]]: unknown list{}; lists are [[{}]]", shown(name),
                     did_you_mean(name, names), fmt::join(names, "]], [["));
}

std::string unknown_section(const Entry& entry, const std::vector<Key>& keys) {
  if (entry.section.ends_with(']')) return unknown_list(entry, keys);
  for (const List& list : lists()) {
    if (list.name == entry.section) {
      return fmt::format("[{}]: this is a list; write [[{}]]", list.name, list.name);
    }
  }
  const auto sections = named_sections(keys);
  const std::string hint = did_you_mean(entry.section, sections);
  return fmt::format("[{}]: unknown section{} Sections are {}.", shown(entry.section),
                     hint.empty() ? "." : hint, fmt::join(sections, ", "));
}

std::string unknown_key(const Entry& entry, const std::vector<Key>& keys) {
  std::vector<std::string_view> here;
  for (const Key& key : keys) {
    if (key.section == entry.section) here.push_back(key.name);
  }
  const std::string path =
      entry.section.empty() ? entry.key : fmt::format("{}.{}", entry.section, entry.key);
  const std::string name = shown(path);
  for (const List& list : lists()) {
    if (list.name == path) return fmt::format("{}: this is a list; write [[{}]]", name, list.name);
  }
  if (const auto best = nearest(entry.key, here)) {
    return fmt::format("{}: unknown key; did you mean '{}'?", name, *best);
  }
  for (const Key& key : keys) {
    if (key.name == entry.key) {
      return fmt::format("{}: unknown key; did you mean '{}' of section [{}]?", name, key.name,
                         key.section);
    }
  }
  if (here.empty()) return fmt::format("{}: unknown key; keys belong to sections", name);
  return fmt::format("{}: unknown key; allowed are {}", name, fmt::join(here, ", "));
}

std::string found_text(const Value& value) {
  struct KeyVisitor {
    std::string operator()(bool v) const { return fmt::format("the boolean {}", v); }
    std::string operator()(int64_t v) const { return fmt::format("the integer {}", v); }
    std::string operator()(double v) const { return fmt::format("the number {}", v); }
    std::string operator()(const std::string& v) const {
      return fmt::format("the string \"{}\"", shown(v));
    }
    std::string operator()(const std::vector<int64_t>&) const { return "an array"; }
    std::string operator()(const NamedNumbers&) const { return "a table"; }
    std::string operator()(const Foreign& v) const { return v.what; }
  };
  return std::visit(KeyVisitor{}, value);
}

std::string with_article(std::string_view type) {
  return fmt::format("{} {}", type == "integer" ? "an" : "a", type);
}

// Returns the legal value nearest to one that is out of range.
std::string nearest_legal(double value, const Key& key) {
  const Range& r = key.range;
  if (std::isnan(value)) return "";
  const bool is_low = value <= r.low;
  if (is_low ? r.low_excluded : r.high_excluded) return "";
  const double limit = is_low ? r.low : r.high;
  if (!std::isfinite(limit)) return "";
  double best = limit;
  if (r.or_value && std::abs(value - static_cast<double>(*r.or_value)) < std::abs(value - limit)) {
    best = static_cast<double>(*r.or_value);
  }
  return std::holds_alternative<int64_t*>(key.field)
             ? fmt::format("; nearest: {}", static_cast<int64_t>(best))
             : fmt::format("; nearest: {}", best);
}

std::optional<std::string> check_range(double value, const std::string& text, const Key& key) {
  if (!std::isfinite(value)) {
    return fmt::format("{} = {}: must be finite", key.path(), text);
  }
  if (key.range.contains(value)) return std::nullopt;
  const Range& range = key.range;
  const std::string rule = value > range.high && !range.names_high()
                               ? fmt::format("at most {}", static_cast<int64_t>(range.high))
                               : range.text();
  return fmt::format("{} = {}: must be {}{}", key.path(), text, rule, nearest_legal(value, key));
}

// Stores the value, or returns the problem if it does not fit the key.
std::optional<std::string> store(const Value& value, const Key& key) {
  const auto wrong_type = [&]() {
    return fmt::format("{}: found {}, expected {}", key.path(), found_text(value),
                       with_article(type_name(key)));
  };
  if (auto* const* field = std::get_if<bool*>(&key.field)) {
    const auto* given = std::get_if<bool>(&value);
    if (given == nullptr) return wrong_type();
    **field = *given;
    return std::nullopt;
  }
  if (auto* const* field = std::get_if<int64_t*>(&key.field)) {
    const auto* given = std::get_if<int64_t>(&value);
    if (given == nullptr) return wrong_type();
    if (auto problem = check_range(static_cast<double>(*given), fmt::format("{}", *given), key)) {
      return problem;
    }
    **field = *given;
    return std::nullopt;
  }
  if (auto* const* field = std::get_if<double*>(&key.field)) {
    double number = 0;
    if (const auto* real = std::get_if<double>(&value)) {
      number = *real;
    } else if (const auto* whole = std::get_if<int64_t>(&value)) {
      number = static_cast<double>(*whole);
    } else {
      return wrong_type();
    }
    if (auto problem = check_range(number, fmt::format("{}", number), key)) return problem;
    **field = number;
    return std::nullopt;
  }
  if (auto* const* field = std::get_if<std::vector<int64_t>*>(&key.field)) {
    const auto* given = std::get_if<std::vector<int64_t>>(&value);
    if (given == nullptr) return wrong_type();
    for (const int64_t number : *given) {
      if (auto problem = check_range(static_cast<double>(number), fmt::format("{}", number), key)) {
        return problem;
      }
    }
    **field = *given;
    return std::nullopt;
  }
  if (auto* const* field = std::get_if<NamedNumbers*>(&key.field)) {
    const auto* given = std::get_if<NamedNumbers>(&value);
    if (given == nullptr) return wrong_type();
    for (const auto& [name, number] : *given) {
      if (auto problem = check_range(number, fmt::format("{}", number), key)) {
        return fmt::format("{} of '{}'", *problem, shown(name));
      }
    }
    **field = *given;
    return std::nullopt;
  }
  // Choices among "auto", "true" and "false" are also written as booleans.
  const auto* const truth = std::get_if<bool>(&value);
  if (truth != nullptr && std::ranges::find(key.choices, "true") != key.choices.end()) {
    *std::get<std::string*>(key.field) = *truth ? "true" : "false";
    return std::nullopt;
  }
  const auto* given = std::get_if<std::string>(&value);
  if (given == nullptr) return wrong_type();
  if (given->find('\0') != std::string::npos) {
    return fmt::format("{}: the string contains a zero byte", key.path());
  }
  std::string& field = *std::get<std::string*>(key.field);
  if (key.choices.empty()) {
    field = *given;
    return std::nullopt;
  }
  const auto choice = choice_of(*given, key.choices);
  if (!choice) {
    return fmt::format("{} = \"{}\": must be {}{}", key.path(), shown(*given), rule_text(key),
                       choice_hint(*given, key.choices));
  }
  field = *choice;
  return std::nullopt;
}

std::optional<std::vector<int64_t>> numbers_from(std::string_view text) {
  const auto trim = [](std::string_view part) {
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    return part;
  };
  text = trim(text);
  if (text.starts_with('[') && text.ends_with(']')) text = trim(text.substr(1, text.size() - 2));
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const auto number = number_from<int64_t>(trim(text.substr(0, comma)));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return numbers;
}

// Reads "web=3,code=1"; returns none for another text.
std::optional<NamedNumbers> named_numbers_from(std::string_view text) {
  NamedNumbers numbers;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const auto number = number_from<double>(one.substr(equals + 1));
    if (!number) return std::nullopt;
    numbers.emplace_back(one.substr(0, equals), *number);
    text.remove_prefix(std::min(text.size(), one.size() + 1));
  }
  return numbers;
}

// Text that is not of the key's type stays a string, which store() then refuses.
Value value_from_text(const std::string& text, const Key& key) {
  if (std::holds_alternative<bool*>(key.field) && (text == "true" || text == "false")) {
    return text == "true";
  }
  if (std::holds_alternative<int64_t*>(key.field)) {
    if (const auto value = scaled_integer(text)) return *value;
    if (const auto value = number_from<double>(text)) return *value;
  }
  if (std::holds_alternative<double*>(key.field)) {
    if (const auto value = scaled_number(text)) return *value;
  }
  if (std::holds_alternative<std::vector<int64_t>*>(key.field)) {
    if (auto numbers = numbers_from(text)) return *std::move(numbers);
  }
  if (std::holds_alternative<NamedNumbers*>(key.field)) {
    if (auto numbers = named_numbers_from(text)) return *std::move(numbers);
  }
  return text;
}

}  // namespace
}  // namespace trireme::config
