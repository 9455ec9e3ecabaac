// SPDX-License-Identifier: Apache-2.0
// An estimate of the bytes of the rank that needs the most, for what EngineMemory does not compute:
// other programs, and layouts with parts that the engine does not have yet.
#pragma once

#include <array>

#include "plan/memory/in_flight.h"
#include "plan/price/price.h"

namespace trireme::plan {

std::array<double, static_cast<size_t>(Item::count)> rank_memory(const Job&, const spec::Machine&,
                                                                 const Stack&, const Layout&,
                                                                 const LayerCosts&,
                                                                 const RankTimes&, InFlightTable&);

}  // namespace trireme::plan
