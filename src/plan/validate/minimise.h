// SPDX-License-Identifier: Apache-2.0
// The least of a function of a few numbers that need not be smooth, by Nelder and Mead's simplex.
#pragma once

#include <functional>
#include <vector>

namespace trireme::plan {

struct Minimum {
  std::vector<double> at;
  double value = 0;
};

// Begins at `start` with a simplex of the size `step` along each number, and again, from the best
// so far, until a beginning gains no more than a hundred-thousandth. The same result for the same
// arguments. A local least: of several, that of the valley of `start`. REQUIRES: the value is
// finite at `start`.
Minimum minimise(const std::function<double(const std::vector<double>&)>& value,
                 std::vector<double> start, double step);

}  // namespace trireme::plan
