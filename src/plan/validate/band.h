// SPDX-License-Identifier: Apache-2.0
// The expected error of a prediction, and the reasons why it may be larger.
#pragma once

#include <string>
#include <vector>

#include "plan/job.h"
#include "plan/stack.h"
#include "spec/machine.h"

namespace trireme::plan {

struct Band {
  double time = 0, memory = 0;        // relative, in both directions
  std::vector<std::string> warnings;  // how the question differs from the runs compared
};
Band band_of(const Job&, const spec::Machine&, const Stack&, const Layout&);

}  // namespace trireme::plan
