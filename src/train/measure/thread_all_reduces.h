// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "plan/validate/fit_machine.h"

namespace trireme::train {

// All-reduces of two ranks, and of `ranks`, that are threads of this process with `threads` each.
std::vector<plan::TimedCollective> thread_all_reduces(int ranks, int threads, bool is_quick);

}  // namespace trireme::train
