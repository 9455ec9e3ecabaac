// SPDX-License-Identifier: Apache-2.0
// The schema: one entry per key, with its type, limits and meaning. Reading, checking, help and the
// documentation page are all driven by it. An entry is bound to a field of one object, so that the
// default is the field's value in a fresh object and is written nowhere else.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/text/json_fwd.h"
#include "config/config.h"

namespace trireme::config {

using Field =
    std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*, NamedNumbers*>;

// The default limit on numbers; rule_text() does not mention it.
constexpr double count_limit = 1e12;

// The limits of a number. `or_value` is also legal, independent of them.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false, high_excluded = false;
  std::optional<int64_t> or_value;

  bool contains(double value) const;
  bool names_high() const { return high < count_limit; }
  std::string text() const;  // "-1 or at least 1"; empty: no limits
};

struct Key {
  // Empty: top level. "training.dataset[1]" is the second element of a list.
  std::string section;
  std::string_view name;
  Field field;
  Range range;
  std::vector<std::string_view> choices;  // of a string; empty: any text
  std::string_view help;
  bool is_required = false;

  std::string path() const;  // "section.name"
};

// Returns the keys in the order of the documentation, those of the elements of lists last. The
// fields point into the argument, which must outlive them, and whose lists must keep their sizes.
std::vector<Key> keys_of(Config&);

// A list of tables, as [[training.dataset]].
struct List {
  std::string_view name;  // "training.dataset"
  std::string_view help;
  size_t max_elements = 0;
  size_t (*size)(const Config&) = nullptr;
  void (*resize)(Config&, size_t) = nullptr;
  // Returns the keys of an element, in the section "training.dataset[2]".
  std::vector<Key> (*keys)(Config&, size_t element) = nullptr;
};
const std::vector<List>& lists();
// "training.dataset[2]"
std::string element_section(std::string_view list, size_t element);

// Returns "boolean", "integer", "number", "string", "list of integers" or "table of numbers".
std::string_view type_name(const Key&);
std::string value_text(const Key&);  // the field's value, as TOML writes it
base::Json value_json(const Key&);   // the field's value
std::string rule_text(const Key&);   // "from 0 to 1", "one of a, b"; empty: no rule

// Returns every key with type, default, rule and meaning, for a terminal.
std::string help_text();
// The same as a list of objects: key, type, default, allowed, meaning.
base::Json help_json();
// Returns the text of docs/configuration.md.
std::string configuration_page();

}  // namespace trireme::config
