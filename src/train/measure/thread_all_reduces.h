// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "plan/validate/fit_machine.h"

namespace trireme::train {

// Measures all-reduces of two ranks and of `ranks` ranks, which are threads of this process with
// `threads` compute threads each.
std::vector<plan::TimedCollective> thread_all_reduces(int ranks, int threads, bool is_quick);

}  // namespace trireme::train
