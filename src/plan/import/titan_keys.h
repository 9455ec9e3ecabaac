// SPDX-License-Identifier: Apache-2.0
// A reader of the keys of a TorchTitan file that records which were read.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.h"

namespace trireme::plan {

class TitanKeys {
 public:
  TitanKeys(const std::string& text, std::string file);

  bool has_section(std::string_view name) const;
  bool has(std::string_view path) const;
  // Returns the paths of all keys in the order of the file.
  std::vector<std::string> given() const;
  // Paths are "section.key", "quantize.linear.float8.recipe_name" for a table inside a section. A
  // key of another type is a problem and counts as absent. whole(): `min` is -1 (or at least 1), 0
  // or 1.
  std::optional<int64_t> whole(std::string_view path, int64_t min = 1);
  std::optional<double> number(std::string_view path);  // finite and at least 0
  std::string text(std::string_view path, const std::string& absent,
                   const std::vector<std::string_view>& allowed = {});
  bool boolean(std::string_view path, bool absent);
  std::vector<std::string> texts(std::string_view path);
  // Returns a degree of [parallelism], or of [training] or [experimental] in older files; `min`,
  // which is 1 or -1, if absent.
  int degree(const std::string& key, int min = 1);

  // `path` may be absent from the file.
  void problem(std::string_view path, const std::string& what);
  bool has_problems() const { return !problems_.empty(); }
  // Throws ConfigError with a line for every problem.
  void throw_if_any() const;
  // Returns the keys that were not read, except those that change neither time nor memory.
  std::vector<std::string> not_read() const;

 private:
  // Returns null if the key is absent.
  const config::Entry* find(std::string_view path);

  std::string file_;
  std::vector<config::Entry> entries_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> problems_;
};

}  // namespace trireme::plan
