// SPDX-License-Identifier: Apache-2.0
// The only file that sees the TOML library.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "config/document.h"

// The library asserts what some malformed files break ("[[[a]"), and may take an assertion that is
// off as a promise to the compiler. Here a broken one throws. That needs the header-only form, even
// where the build names the compiled one.
namespace trireme::config {
namespace {
struct TomlAssertion {};
[[noreturn]] void toml_assertion_failed() { throw TomlAssertion(); }
}  // namespace
}  // namespace trireme::config
#undef NDEBUG
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::trireme::config::toml_assertion_failed())
#include <toml++/toml.h>

namespace trireme::config {
namespace {

Value value_of(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  if (node.is_array()) return Foreign{"an array"};
  if (node.is_table()) return Foreign{"a table"};
  return Foreign{"a date or time"};
}

struct Placed {
  toml::source_position position;
  Entry entry;
};

void collect(const toml::table& table, const std::string& section, const std::string& file,
             std::vector<Placed>& placed) {
  for (const auto& [key, node] : table) {
    const toml::source_position position = key.source().begin;
    const std::string where = fmt::format("{}:{}", file, position.line);
    const std::string name(key.str());
    const toml::table* inner = node.as_table();
    if (section.empty() && inner != nullptr) {
      placed.push_back(
          {position, {.section = name, .value = {}, .where = where, .is_section_start = true}});
      // Only the sections of the top level are opened; a table inside one is a value.
      if (!name.empty()) collect(*inner, name, file, placed);
    } else {
      placed.push_back(
          {position, {.section = section, .key = name, .value = value_of(node), .where = where}});
    }
  }
}

bool breaks_an_assertion(std::string_view text) {
  try {
    (void)toml::parse(text);
  } catch (const toml::parse_error&) {
  } catch (const TomlAssertion&) {
    return true;
  }
  return false;
}

// The parser reads from the top, so the line is the last one of the shortest text, in whole lines,
// that breaks the assertion.
size_t line_of_assertion(std::string_view text) {
  std::vector<size_t> ends;  // of lines
  for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    ends.push_back(at + 1);
  }
  const auto first = std::partition_point(ends.begin(), ends.end(), [&](size_t end) {
    return !breaks_an_assertion(text.substr(0, end));
  });
  return static_cast<size_t>(first - ends.begin()) + 1;
}

}  // namespace

std::vector<Entry> entries_of_toml(const std::string& text, const std::string& file) {
  toml::table table;
  try {
    table = toml::parse(std::string_view(text));
  } catch (const TomlAssertion&) {
    throw base::ConfigError(
        fmt::format("{}:{}: not TOML: malformed", file, line_of_assertion(text)));
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw base::ConfigError(fmt::format("{}:{}: not TOML (column {}): {}", file, at.line, at.column,
                                        std::string_view(error.description())));
  }
  std::vector<Placed> placed;
  collect(table, "", file, placed);
  // The library keeps keys in alphabetical order; people read files from the top.
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.position < b.position; });
  std::vector<Entry> entries;
  entries.reserve(placed.size());
  for (Placed& one : placed) entries.push_back(std::move(one.entry));
  return entries;
}

}  // namespace trireme::config
