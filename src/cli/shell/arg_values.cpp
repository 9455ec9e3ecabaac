// SPDX-License-Identifier: Apache-2.0
// The values of a call, converted on access.
#include <fmt/format.h>

#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "cli/shell/args.h"
#include "cli/shell/number_words.h"

namespace trireme::cli {
namespace {

const std::vector<std::string>& values_of(
    const std::map<std::string, std::vector<std::string>>& all, const std::string& name) {
  const auto found = all.find(name);
  TRIREME_CHECK(found != all.end(), "the verb has no option '{}'", name);
  return found->second;
}

std::string single(const std::vector<std::string>& values, const std::string& name) {
  TRIREME_CHECK(values.size() == 1, "option '{}' has {} values", name, values.size());
  return values.front();
}

}  // namespace

bool Args::accepts(const std::string& name) const { return values_.contains(name); }
bool Args::has(const std::string& name) const { return !values_of(values_, name).empty(); }

bool Args::is_given(const std::string& name) const {
  TRIREME_CHECK(accepts(name), "the verb has no option '{}'", name);
  return given_.contains(name);
}

std::string Args::text(const std::string& name) const {
  const auto& values = values_of(values_, name);
  return values.empty() ? "" : single(values, name);
}

int64_t Args::integer(const std::string& name) const {
  const auto value = integer_from(single(values_of(values_, name), name));
  TRIREME_CHECK(value.has_value(), "option '{}' is not an integer", name);
  return *value;
}

int Args::small_integer(const std::string& name) const {
  const int64_t value = integer(name);
  constexpr int min = std::numeric_limits<int>::min(), max = std::numeric_limits<int>::max();
  if (value < min || value > max) {
    throw base::ConfigError(fmt::format("{} {}: from {} to {}", name, value, min, max));
  }
  return static_cast<int>(value);
}

double Args::number(const std::string& name) const {
  const auto value = number_from(single(values_of(values_, name), name));
  TRIREME_CHECK(value.has_value(), "option '{}' is not a number", name);
  return *value;
}

bool Args::flag(const std::string& name) const {
  return single(values_of(values_, name), name) == "1";
}

const std::vector<std::string>& Args::list(const std::string& name) const {
  return values_of(values_, name);
}

}  // namespace trireme::cli
