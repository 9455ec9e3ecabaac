// SPDX-License-Identifier: Apache-2.0
// Minimises a function of a few variables, which need not be smooth, by the Nelder-Mead simplex.
#pragma once

#include <functional>
#include <vector>

namespace trireme::plan {

struct Minimum {
  std::vector<double> at;
  double value = 0;
};

// Begins at `start` with a simplex of size `step` along each variable, and restarts from the best
// point until a restart gains less than 1e-5 relatively. Deterministic. The result is a local
// minimum. REQUIRES: the value is finite at `start`.
Minimum minimise(const std::function<double(const std::vector<double>&)>& value,
                 std::vector<double> start, double step);

}  // namespace trireme::plan
