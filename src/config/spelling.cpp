// SPDX-License-Identifier: Apache-2.0
#include "config/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "base/text/type_spelling.h"
#include "spec/recipe.h"

namespace trireme::config {
namespace {

std::string lower(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: row[j] is the distance of a's first i letters from b's first j.
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::optional<std::string_view> nearest(std::string_view word,
                                        const std::vector<std::string_view>& candidates) {
  constexpr size_t longest = 100;  // a mistyped key is not longer
  if (word.size() > longest) return std::nullopt;
  const int limit = std::max(2, static_cast<int>(word.size()) / 3);
  std::optional<std::string_view> best;
  int best_distance = limit + 1;
  for (const std::string_view candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    // A word of two letters is not a typing error for every other word of two letters.
    if (distance >= static_cast<int>(std::max(word.size(), candidate.size()))) continue;
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::optional<std::string_view> in_any_case(std::string_view word,
                                            const std::vector<std::string_view>& names) {
  const auto alike = std::ranges::find_if(
      names, [&](std::string_view name) { return lower(name) == lower(word); });
  return alike == names.end() ? std::nullopt : std::optional(*alike);
}

std::optional<std::string_view> choice_of(std::string_view word,
                                          const std::vector<std::string_view>& choices) {
  const auto exact = std::find(choices.begin(), choices.end(), word);
  if (exact != choices.end()) return *exact;
  if (const auto alike = in_any_case(word, choices)) return alike;
  const auto type = base::short_type_name(word);
  if (!type) {
    const auto recipe = spec::precision_from_name(lower(word));
    const auto named = recipe ? std::ranges::find(choices, spec::name_of(*recipe)) : choices.end();
    return named == choices.end() ? std::nullopt : std::optional(*named);
  }
  const auto same = std::find_if(choices.begin(), choices.end(), [&](std::string_view choice) {
    return base::short_type_name(choice) == type;
  });
  return same == choices.end() ? std::nullopt : std::optional(*same);
}

std::string choice_hint(std::string_view word, const std::vector<std::string_view>& choices) {
  if (base::short_type_name(word) || spec::precision_from_name(word))
    return fmt::format("; {} is not supported here", word);
  const auto best = nearest(word, choices);
  return best ? fmt::format("; did you mean '{}'?", *best) : "";
}

}  // namespace trireme::config
