// SPDX-License-Identifier: Apache-2.0
// Layouts as people type them: "tp=8 sp pp=4 interleaved=3 zero=1 micro=2 full".
#pragma once

#include <string>
#include <string_view>

#include "plan/job.h"

namespace trireme::plan {

// Words, by spaces or commas: tp, cp, pp, dp, ep, zero, micro, chunks = number; sp; a schedule's
// name, interleaved also with its chunks as interleaved=3; selective or full recompute; fp32, bf16,
// fp8 or fp4; pp-inside. dp that is not given is what is left of the processors. Throws ConfigError
// that names the word.
Layout layout_from_text(std::string_view text, int64_t processors);

// The same words; what is as in a fresh Layout is left out.
std::string to_text(const Layout&);

}  // namespace trireme::plan
