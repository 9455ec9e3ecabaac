// SPDX-License-Identifier: Apache-2.0
// A reader of Megatron-LM's flags and their values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plan/import/command_words.h"

namespace trireme::plan {

// Holds the flags; the last of several counts, as in Megatron. Every accessor marks its flag as
// read. Problems are collected, so that all can be reported at once.
class MegatronFlags {
 public:
  explicit MegatronFlags(std::vector<Flag> flags);

  bool was_given(std::string_view name);
  bool has(std::string_view name) const { return flags_.contains(name); }  // does not mark it
  const std::vector<std::string>& given() const { return order_; }
  // For a flag that takes no value.
  bool is_on(std::string_view name);
  // Return an integer from `min`, or 1, to `max`.
  std::optional<int64_t> whole(std::string_view name, int64_t max = int64_t{1} << 30,
                               int64_t min = 1);
  int64_t required(std::string_view name, int64_t max = int64_t{1} << 30);
  int degree(std::string_view name);                           // 1 if not given
  std::optional<double> number(std::string_view name);         // above 0
  std::optional<double> at_least_zero(std::string_view name);  // for a number that may be 0
  // Returns the value, which must be in `allowed` unless that is empty; empty if not given.
  std::string text(std::string_view name, const std::vector<std::string_view>& allowed = {});
  // Returns all values of a flag that takes several; empty if not given.
  std::vector<std::string> list(std::string_view name);

  void problem(std::string_view name, const std::string& what);
  // Adds a problem whose text names its flag.
  void broken(const std::string& text) { problems_.push_back(text); }
  bool has_problems() const { return !problems_.empty(); }
  // Throws ConfigError with a line for every problem.
  void throw_if_any() const;
  const std::vector<std::string>& repeated() const { return repeated_; }

  // Returns the given flags that were not read, except harmless ones.
  std::vector<std::string> not_read() const;

 private:
  // Returns null if the flag is not given or malformed.
  const std::string* value(std::string_view name);
  std::optional<double> number_from(std::string_view name, bool may_be_zero);

  std::map<std::string, Flag, std::less<>> flags_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> order_, repeated_, problems_;
};

// Returns whether the flag changes neither time nor memory: learning rate, data, logging,
// checkpoints, rendezvous.
bool is_harmless_megatron_flag(std::string_view name);

}  // namespace trireme::plan
