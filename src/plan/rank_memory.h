// SPDX-License-Identifier: Apache-2.0
// Bytes of the rank that needs the most, from the facts that the engine allocates with. Layouts
// that the engine runs have an exact prediction besides (spec/predict.h), which differs by
// rounding.
#pragma once

#include <array>

#include "plan/in_flight.h"
#include "plan/price.h"

namespace trireme::plan {

std::array<double, static_cast<size_t>(Item::count)> rank_memory(const Job&, const spec::Machine&,
                                                                 const Stack&, const Layout&,
                                                                 const LayerCosts&,
                                                                 const RankTimes&, InFlightTable&);

}  // namespace trireme::plan
