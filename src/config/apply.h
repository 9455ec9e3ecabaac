// SPDX-License-Identifier: Apache-2.0
// From entries to fields: finds each entry's key in the schema, checks type and limits, and writes
// the field. Problems are collected, so that all of them can be reported at once.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/document.h"
#include "config/schema.h"

namespace trireme::config {

class Report {
 public:
  // `places`: where keys were given, by path.
  explicit Report(std::map<std::string, std::string> places = {}) : where_(std::move(places)) {}

  void add(const std::string& where, const std::string& problem);
  // Adds a problem of one key: rules that involve the key are not checked any more.
  void add_bad_key(const std::string& path, const std::string& where, const std::string& problem);
  void mark_bad(const std::string& path) { bad_.insert(path); }
  void remember(const std::string& path, const std::string& where) { where_[path] = where; }

  bool is_bad(const std::string& path) const { return bad_.contains(path); }
  bool was_given(const std::string& path) const { return where_.contains(path); }
  const std::map<std::string, std::string>& places() const { return where_; }
  // Returns where the key was given last, or "default".
  std::string where(const std::string& path) const;

  // Checks a rule between keys. A violation is reported for the first key; nothing happens if one
  // of them is already bad.
  void demand(bool holds, std::initializer_list<std::string_view> paths,
              const std::string& problem) {
    if (!holds) blame({paths.begin(), paths.end()}, problem);
  }
  // The same for a rule that is known to be broken.
  void blame(const std::vector<std::string>& paths, const std::string& problem);

  bool empty() const { return problems_.empty(); }
  // Throws ConfigError with a line for every problem.
  void throw_if_any(const std::string& what) const;

 private:
  std::vector<std::string> problems_;
  std::map<std::string, std::string> where_;
  std::set<std::string> bad_;
};

// Writes the fields of `keys`. Required keys without an entry are problems at `file`.
void apply(const std::vector<Entry>& entries, const std::vector<Key>& keys, const std::string& file,
           Report& report);

// Returns overrides, in the forms of LoadOptions, as entries with values of their key's type.
std::vector<Entry> entries_of_overrides(const std::vector<std::string>& overrides,
                                        const std::vector<Key>& keys, Report& report);

}  // namespace trireme::config
