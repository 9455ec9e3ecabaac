// SPDX-License-Identifier: Apache-2.0
// Reads the keys of a Hugging Face config.json and collects problems, so that all of them can be
// reported at once.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/json.h"

namespace trireme::config {

// Reads one object and collects its problems. A key that is null counts as absent.
class HfReader {
 public:
  HfReader(const base::Json& object, std::string prefix, std::vector<std::string>& problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  const base::Json* find(std::string_view key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  // Without a default the key is required.
  int64_t size(std::string_view key, std::optional<int64_t> absent = std::nullopt,
               int64_t max = 1 << 30) {
    const base::Json* value = find(key);
    if (value == nullptr) {
      if (!absent) problem(key, "required, but not given");
      if (absent > max) {
        problem(key, fmt::format("not given, so {}; at most {} is allowed", *absent, max));
      }
      return absent.value_or(1);
    }
    if (!value->is_number_integer() || *value < 1 || *value > max) {
      problem(key, fmt::format("found {}, expected an integer from 1 to {}", shown(*value), max));
      return 1;
    }
    return value->get<int64_t>();
  }

  double number(std::string_view key, std::optional<double> absent, double max = 1e12,
                double min = 1e-12) {
    const base::Json* value = find(key);
    if (value == nullptr) {
      if (!absent) problem(key, "required, but not given");
      return absent.value_or(1);
    }
    if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max)) {
      problem(key,
              fmt::format("found {}, expected a number from {} to {}", shown(*value), min, max));
      return 1;
    }
    return value->get<double>();
  }

  bool boolean(std::string_view key, bool absent) {
    const base::Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) {
      problem(key, fmt::format("found {}, expected true or false", shown(*value)));
      return absent;
    }
    return value->get<bool>();
  }

  // Returns the value as text; empty if absent.
  std::string text(std::string_view key) {
    const base::Json* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) {
      problem(key, fmt::format("found {}, expected a string", shown(*value)));
      return "";
    }
    return value->get<std::string>();
  }

  void must_be_false(std::string_view key, std::string_view why) {
    if (boolean(key, false)) problem(key, fmt::format("true is not supported: {}", why));
  }
  void must_be_absent(std::string_view key, std::string_view why) {
    if (const base::Json* value = find(key)) {
      problem(key, fmt::format("{} is not supported: {}", shown(*value), why));
    }
  }
  void must_be_one_of(std::string_view key, std::vector<std::string> allowed) {
    const base::Json* value = find(key);
    if (value == nullptr) return;
    for (const std::string& name : allowed) {
      if (*value == name) return;
    }
    problem(key, fmt::format("{} is not supported; supported: {}", shown(*value),
                             fmt::join(allowed, ", ")));
  }

  void problem(std::string_view key, const std::string& what) {
    problems_.push_back(fmt::format("{}{}: {}", prefix_, key, what));
  }

  static std::string shown(const base::Json& value) {
    constexpr size_t longest = 80;
    std::string text = value.dump(-1, ' ', true, base::Json::error_handler_t::replace);
    if (text.size() > longest) text = text.substr(0, longest) + "...";
    return text;
  }

 private:
  const base::Json& object_;
  std::string prefix_;
  std::vector<std::string>& problems_;
};

}  // namespace trireme::config
