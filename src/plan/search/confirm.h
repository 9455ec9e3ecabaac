// SPDX-License-Identifier: Apache-2.0
// Confirms one layout as the engine would run it: the plan itself, its memory to the byte, and its
// pipeline run by the simulator. This is too slow for every layout of a search; it is done for
// those that the search proposes.
#pragma once

#include <string>
#include <vector>

#include "plan/price/price.h"
#include "sim/sim.h"
#include "spec/plan.h"

namespace trireme::plan {

struct Confirmed {
  std::string problem;    // the reason why the engine rejects it; empty: it runs
  bool has_plan = false;  // `plan` is valid: the engine runs it, and the stack is the engine's
  spec::Plan plan;        // with its prediction
  double bytes = 0;       // of the rank with the highest total, with memory that libraries reserve
  // The price with the simulated pipeline; without stages, the price.
  double seconds = 0;
  double bubble = 0;  // simulated
  // Compute of a step without transfers, by rank along pp; empty unless has_plan.
  std::vector<double> stage_seconds;
};
// Returns the price with the confirmed seconds as its sum: where the pipeline was simulated,
// `bubble` is the simulated waiting, messages included.
Price confirmed_price(const Price&, const Confirmed&);

// Returns Confirmed::bytes alone. Throws ConfigError if the engine rejects the layout.
double engine_bytes(const Job&, const spec::Machine&, const Stack&, const Layout&);

Confirmed confirm(const Job&, const spec::Machine&, const Stack&, const Layout&);

// Returns the simulated pipeline of a step, with its timeline. REQUIRES: confirm() of the same
// question has returned this plan.
sim::Result play_pipeline(const Job&, const spec::Machine&, const Stack&, const spec::Plan&,
                          const Layout&);

}  // namespace trireme::plan
