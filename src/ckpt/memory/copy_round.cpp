// SPDX-License-Identifier: Apache-2.0
#include "ckpt/memory/copy_round.h"

#include <algorithm>

#include "base/check.h"

namespace trireme::ckpt {
namespace {

bool contains(const CopySteps::Steps& steps, int64_t step) {
  return std::ranges::find(steps, step) != steps.end();
}

}  // namespace

CopyRound round_of(std::span<const CopySteps> all) {
  CopyRound round;
  if (all.empty()) return round;
  for (const CopySteps::Steps* steps : {&all.front().sealed, &all.front().filling}) {
    for (const int64_t step : *steps) {
      if (step == CopySteps::empty) continue;
      const auto everywhere = [&](const auto& has) { return std::ranges::all_of(all, has); };
      if (everywhere([step](const CopySteps& of) {
            return contains(of.sealed, step) || contains(of.filling, step);
          })) {
        round.possible.push_back(step);
      }
      if (step > round.held.value_or(CopySteps::empty) &&
          everywhere([step](const CopySteps& of) { return contains(of.sealed, step); })) {
        round.held = step;
      }
    }
  }
  for (const int64_t step : all.front().kept) {
    const auto has = [step](const CopySteps& of) { return contains(of.kept, step); };
    if (step > round.kept.value_or(CopySteps::empty) && std::ranges::all_of(all, has)) {
      round.kept = step;
    }
  }
  return round;
}

std::optional<int> free_buffer(const CopySteps& own, int buffers, const CopyRound& round) {
  std::optional<size_t> oldest;
  for (size_t buffer = 0; buffer < static_cast<size_t>(buffers); ++buffer) {
    const int64_t step = own.sealed[buffer];
    if (own.filling[buffer] != CopySteps::empty) continue;
    const bool is_needed = step != CopySteps::empty && (!round.held || step >= *round.held) &&
                           std::ranges::find(round.possible, step) != round.possible.end();
    if (is_needed) continue;
    if (!oldest || step < own.sealed[*oldest]) oldest = buffer;
  }
  if (!oldest) return std::nullopt;
  return static_cast<int>(*oldest);
}

bool may_copy(std::span<const CopySteps> all, int buffers) {
  const CopyRound round = round_of(all);
  return std::ranges::all_of(all, [&](const CopySteps& own) {
    return own.sending == CopySteps::empty && free_buffer(own, buffers, round).has_value();
  });
}

int buffer_to_keep_in(const CopySteps::Steps& sealed, int buffers, int64_t keep) {
  TRIREME_CHECK(buffers >= min_copy_buffers && buffers <= max_copy_buffers, "{} buffers", buffers);
  std::optional<size_t> oldest;
  for (size_t buffer = 0; buffer < static_cast<size_t>(buffers); ++buffer) {
    const int64_t step = sealed[buffer];
    if (step != CopySteps::empty && step == keep) continue;
    if (!oldest || step < sealed[*oldest]) oldest = buffer;
  }
  TRIREME_CHECK(oldest.has_value(), "all of {} buffers have step {}", buffers, keep);
  return static_cast<int>(*oldest);
}

}  // namespace trireme::ckpt
