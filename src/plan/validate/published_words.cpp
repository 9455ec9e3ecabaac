// SPDX-License-Identifier: Apache-2.0
#include "plan/validate/published_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "plan/validate/published_row.h"

namespace trireme::plan {
namespace {

template <typename Value>
struct Stated {
  std::string_view word;
  Value value;
};

// Fewer bits come first: "bf16 + fp8" is a recipe of 8 bits, "bf16 + fp32 master" one of 16.
constexpr auto precisions = std::to_array<Stated<Precision>>({{"fp4", Precision::fp4},
                                                              {"nvfp4", Precision::fp4},
                                                              {"mxfp4", Precision::fp4},
                                                              {"float4", Precision::fp4},
                                                              {"fp8", Precision::fp8},
                                                              {"mxfp8", Precision::fp8},
                                                              {"float8", Precision::fp8},
                                                              {"e4m3", Precision::fp8},
                                                              {"bf16", Precision::bf16},
                                                              {"bfloat16", Precision::bf16},
                                                              {"fp16", Precision::bf16},
                                                              {"float16", Precision::bf16},
                                                              {"half", Precision::bf16},
                                                              {"fp32", Precision::fp32},
                                                              {"float32", Precision::fp32}});
constexpr auto precision_words = std::to_array<std::string_view>(
    {"mixed",  "amp",        "params",  "acts",      "weights", "grads",     "gradients",
     "master", "opt",        "states",  "delayed",   "current", "scaling",   "cs",
     "mx",     "tensorwise", "rowwise", "blockwise", "per",     "tensor",    "block",
     "row",    "hybrid",     "recipe",  "and",       "with",    "precision", "optimizer",
     "pure",   "training",   "e5m2"});

constexpr auto recomputes =
    std::to_array<Stated<spec::Recompute>>({{"full", spec::Recompute::full},
                                            {"selective", spec::Recompute::selective},
                                            {"gelu", spec::Recompute::selective},
                                            {"none", spec::Recompute::none},
                                            {"no", spec::Recompute::none},
                                            {"off", spec::Recompute::none}});
constexpr auto recompute_words = std::to_array<std::string_view>(
    {"attention", "core",  "sp",  "norm",  "act", "layernorm", "moe",        "recompute",
     "op",        "ops",   "r",   "0",     "1",   "2",         "activation", "checkpointing",
     "uniform",   "block", "all", "layers"});

constexpr auto schedules = std::to_array<std::string_view>(
    {"1f1b", "interleaved", "zb-1p", "zb-2p", "zb-v", "zbv", "gpipe"});

// Splits at everything but letters and digits.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : lower(std::string(text))) {
    const bool is_part = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_part) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Returns the first value of the table that one of the words names. Throws Unpriced for a text
// without one, and for a word that neither list has.
template <typename Value, size_t n, size_t m>
std::optional<Value> stated(std::string_view key, std::string_view text,
                            const std::array<Stated<Value>, n>& table,
                            const std::array<std::string_view, m>& others) {
  const std::vector<std::string> words = words_of(text);
  if (words.empty()) return {};
  std::vector<std::string_view> names;
  for (const Stated<Value>& one : table) names.push_back(one.word);
  for (const std::string& word : words) {
    if (std::ranges::find(names, word) != names.end()) continue;
    if (std::ranges::find(others, word) != others.end()) continue;
    throw Unpriced{fmt::format("{} = {}: '{}' is not understood; expected one of {}", key, text,
                               word, fmt::join(names, ", "))};
  }
  for (const Stated<Value>& one : table) {
    if (std::ranges::find(words, one.word) != words.end()) return one.value;
  }
  throw Unpriced{fmt::format("{} = {}: names none of {}", key, text, fmt::join(names, ", "))};
}

}  // namespace

std::optional<Precision> stated_precision(std::string_view text) {
  return stated("precision", text, precisions, precision_words);
}

std::optional<spec::Recompute> stated_recompute(std::string_view text) {
  return stated("recompute", text, recomputes, recompute_words);
}

void check_stated_schedule(std::string_view text) {
  const std::string small = lower(std::string(text));
  const auto is_in = [&small](std::string_view name) { return has(small, name); };
  if (small.empty() || std::ranges::any_of(schedules, is_in)) return;
  throw Unpriced{fmt::format("schedule = {}: names none of {}", text, fmt::join(schedules, ", "))};
}

}  // namespace trireme::plan
