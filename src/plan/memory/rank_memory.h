// SPDX-License-Identifier: Apache-2.0
// Estimates the bytes of the rank with the highest total, for cases that EngineMemory does not
// cover: other programs, and layouts that the engine cannot run yet.
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
