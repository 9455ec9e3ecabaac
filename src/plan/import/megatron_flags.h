// SPDX-License-Identifier: Apache-2.0
// The flags of Megatron-LM by what the planner makes of them, and a reader of their values.
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

// Flags of which only the last of several counts, as in Megatron. What is asked for counts as
// looked at; problems are collected, so that all can be reported at once.
class MegatronFlags {
 public:
  explicit MegatronFlags(std::vector<Flag> flags);

  bool was_given(std::string_view name);
  // Of a flag that takes no value.
  bool is_on(std::string_view name);
  // From 1 to `most`.
  std::optional<int64_t> whole(std::string_view name, int64_t most = int64_t{1} << 30);
  int64_t required(std::string_view name, int64_t most = int64_t{1} << 30);
  int degree(std::string_view name);  // 1 if not given
  std::optional<double> number(std::string_view name);
  // Empty: not given. Otherwise one of `allowed`, if there are any.
  std::string text(std::string_view name, const std::vector<std::string_view>& allowed = {});

  void problem(std::string_view name, const std::string& what);
  // A problem whose text names its flag.
  void broken(const std::string& text) { problems_.push_back(text); }
  bool has_problems() const { return !problems_.empty(); }
  // ConfigError with a line for every problem.
  void throw_if_any() const;
  const std::vector<std::string>& repeated() const { return repeated_; }

  // Given, not looked at, and not known to leave time and memory alone.
  std::vector<std::string> not_looked_at() const;

 private:
  // Null: not given, or given badly.
  const std::string* value(std::string_view name);

  std::map<std::string, Flag, std::less<>> flags_;
  std::set<std::string, std::less<>> looked_at_;
  std::vector<std::string> order_, repeated_, problems_;
};

// Learning rate, data, logging, checkpoints, rendezvous: nothing that changes time or memory.
bool is_harmless_megatron_flag(std::string_view name);

}  // namespace trireme::plan
