// SPDX-License-Identifier: Apache-2.0
// From entries to fields: finds each entry's key in the schema, checks type and limits, and writes
// the field. Problems are collected, so that all of them can be reported at once.
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.h"
#include "config/schema.h"

namespace trireme::config {

class Report {
 public:
  void add(const std::string& where, const std::string& problem);
  // A problem that belongs to one key: rules that involve it are not looked at any more.
  void add_bad_key(const std::string& path, const std::string& where, const std::string& problem);
  void mark_bad(const std::string& path) { bad_.insert(path); }
  void remember(const std::string& path, const std::string& where) { where_[path] = where; }

  bool is_bad(const std::string& path) const { return bad_.contains(path); }
  bool was_given(const std::string& path) const { return where_.contains(path); }
  // Where the key was given last; "default" if it was not.
  std::string where(const std::string& path) const;

  // A rule between keys. The first one is blamed; nothing happens if one of them is bad already.
  void demand(bool holds, std::initializer_list<std::string_view> paths,
              const std::string& problem) {
    if (!holds) blame({paths.begin(), paths.end()}, problem);
  }
  // The same, of a rule that is broken.
  void blame(const std::vector<std::string>& paths, const std::string& problem);

  bool empty() const { return problems_.empty(); }
  // ConfigError with a line for every problem.
  void throw_if_any(const std::string& what) const;

 private:
  std::vector<std::string> problems_;
  std::map<std::string, std::string> where_;
  std::set<std::string> bad_;
};

// Writes the fields of `keys`. Required keys that no entry gave are problems at `file`.
void apply(const std::vector<Entry>& entries, const std::vector<Key>& keys, const std::string& file,
           Report& report);

// Overrides in the forms of LoadOptions as entries, with values read by the type of their key.
std::vector<Entry> entries_of_overrides(const std::vector<std::string>& overrides,
                                        const std::vector<Key>& keys, Report& report);

}  // namespace trireme::config
