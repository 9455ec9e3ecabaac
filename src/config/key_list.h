// SPDX-License-Identifier: Apache-2.0
// Writes a schema as a list of calls, one per key.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/schema.h"

namespace trireme::config {

class KeyList {
 public:
  // Starts a section, to which the following keys belong.
  void section(std::string name) { section_ = std::move(name); }

  void text(std::string_view name, std::string& field, std::string_view help) {
    add(name, &field, {}, {}, help);
  }
  void choice(std::string_view name, std::string& field, std::vector<std::string_view> choices,
              std::string_view help) {
    add(name, &field, {}, std::move(choices), help);
  }
  void boolean(std::string_view name, bool& field, std::string_view help) {
    add(name, &field, {}, {}, help);
  }
  void number(std::string_view name, int64_t& field, const Range& range, std::string_view help) {
    add(name, &field, range, {}, help);
  }
  void number(std::string_view name, double& field, const Range& range, std::string_view help) {
    add(name, &field, range, {}, help);
  }
  // Adds a list; `range` limits each number.
  void numbers(std::string_view name, std::vector<int64_t>& field, const Range& range,
               std::string_view help) {
    add(name, &field, range, {}, help);
  }
  // Adds a table of numbers; `range` limits each one.
  void table(std::string_view name, NamedNumbers& field, const Range& range,
             std::string_view help) {
    add(name, &field, range, {}, help);
  }
  // Marks the last key as required.
  void require() { keys_.back().is_required = true; }

  std::vector<Key> take() { return std::move(keys_); }

 private:
  void add(std::string_view name, Field field, const Range& range,
           std::vector<std::string_view> choices, std::string_view help) {
    keys_.push_back({.section = section_,
                     .name = name,
                     .field = field,
                     .range = range,
                     .choices = std::move(choices),
                     .help = help});
  }

  std::string section_;
  std::vector<Key> keys_;
};

}  // namespace trireme::config
