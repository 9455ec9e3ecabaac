// SPDX-License-Identifier: Apache-2.0
// Which checkpoints a run may resume from, by their marks. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/marks/mark_file.h"

namespace trireme::ckpt {

enum class WantedMark : uint8_t {
  not_bad,  // the newest that is not bad; after a divergence the newest good one
  good      // the newest good one
};

struct ResumeChoice {
  std::vector<int64_t> steps;  // to try, one after the other
  // Why it is not simply the newest; empty: it is.
  std::string note;
};
// `all`: of a folder, newest first. After a divergence the good ones come first, and then the
// others that are not bad: they are older than its onset.
ResumeChoice choose_resume(std::span<const MarkedGeneration> all, bool has_diverged, WantedMark);

// Returns the marks of the newest checkpoints, for messages: "step 40 is bad (divergence: ...)".
std::string marks_text(std::span<const MarkedGeneration> all);

}  // namespace trireme::ckpt
