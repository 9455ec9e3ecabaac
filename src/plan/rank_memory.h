// SPDX-License-Identifier: Apache-2.0
// Bytes of the rank that needs the most, from the facts that the engine allocates with. Layouts
// that the engine runs have an exact prediction besides (spec/predict.h), which differs by
// rounding.
#pragma once

#include <array>

#include "plan/price.h"
#include "plan/stage_share.h"

namespace trireme::plan {

std::array<double, static_cast<size_t>(Item::count)> rank_memory(const Job&, const spec::Machine&,
                                                                 const Stack&, const Layout&,
                                                                 const LayerCosts&,
                                                                 const RankTimes&);

}  // namespace trireme::plan
