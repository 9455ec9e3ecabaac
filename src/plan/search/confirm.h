// SPDX-License-Identifier: Apache-2.0
// One layout looked at as the engine would run it: the plan itself, its memory to the byte, and its
// pipeline played by the simulator. Too dear for every layout of a search; done for those that it
// proposes.
#pragma once

#include <string>

#include "plan/price/price.h"
#include "spec/plan.h"

namespace trireme::plan {

struct Confirmed {
  std::string problem;    // why the engine refuses it; empty: it runs
  bool has_plan = false;  // `plan` holds it: it runs, and the stack is the engine's
  spec::Plan plan;        // with its prediction
  double bytes = 0;       // of the rank that needs the most, with what libraries take
  // The price with the pipeline's wait as simulated; without stages, the price.
  double seconds = 0;
  double bubble = 0;  // as simulated
};
// Returns Confirmed::bytes alone. Throws ConfigError if the engine refuses the layout.
double engine_bytes(const Job&, const spec::Machine&, const Stack&, const Layout&);

Confirmed confirm(const Job&, const spec::Machine&, const Stack&, const Layout&);

}  // namespace trireme::plan
