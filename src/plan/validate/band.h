// SPDX-License-Identifier: Apache-2.0
// How far a prediction can be trusted, and why not further.
#pragma once

#include <string>
#include <vector>

#include "plan/job.h"
#include "plan/stack.h"
#include "spec/machine.h"

namespace trireme::plan {

struct Band {
  double time = 0, memory = 0;        // relative, each way
  std::vector<std::string> warnings;  // where it was not compared with runs like this one
};
Band band_of(const Job&, const spec::Machine&, const Stack&, const Layout&);

}  // namespace trireme::plan
