// SPDX-License-Identifier: Apache-2.0
#include "ckpt/marks/resume_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::ckpt {
namespace {

// Returns why the choice does not begin with the newest checkpoint.
std::string choice_note(std::span<const MarkedGeneration> all, const ResumeChoice& choice,
                        bool has_diverged, bool has_good) {
  if (choice.steps.empty()) return "";
  const int64_t first = choice.steps.front();
  if (has_diverged) {
    return has_good ? fmt::format(
                          "the last attempt diverged: from the newest good checkpoint, of "
                          "step {}",
                          first)
                    : fmt::format(
                          "the last attempt diverged, and no checkpoint is marked good: "
                          "from the newest before the divergence, of step {}",
                          first);
  }
  if (all.front().id.step == first) return "";
  return fmt::format("from the checkpoint of step {}: {}", first, marks_text(all.first(1)));
}

}  // namespace

ResumeChoice choose_resume(std::span<const MarkedGeneration> all, bool has_diverged,
                           WantedMark wanted) {
  ResumeChoice choice;
  std::vector<int64_t> others;
  for (const MarkedGeneration& one : all) {
    if (one.is(Mark::bad)) continue;
    const bool is_first_choice = wanted == WantedMark::not_bad && !has_diverged;
    (is_first_choice || one.is(Mark::good) ? choice.steps : others).push_back(one.id.step);
  }
  const bool has_good = !choice.steps.empty();
  if (wanted == WantedMark::not_bad) {
    choice.steps.insert(choice.steps.end(), others.begin(), others.end());
  }
  const bool tells_divergence = has_diverged && wanted == WantedMark::not_bad;
  choice.note = choice_note(all, choice, tells_divergence, has_good);
  return choice;
}

std::string marks_text(std::span<const MarkedGeneration> all) {
  constexpr size_t max_named = 4;
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), max_named); ++i) {
    const MarkedGeneration& one = all[i];
    text += fmt::format("{}step {} is ", i == 0 ? "" : "; ", one.id.step);
    text += one.mark ? fmt::format("{} ({}: {})", name_of(one.mark->mark), one.mark->detector,
                                   one.mark->evidence)
                     : "not marked";
  }
  if (all.size() > max_named) text += fmt::format("; and {} more", all.size() - max_named);
  return text;
}

}  // namespace trireme::ckpt
