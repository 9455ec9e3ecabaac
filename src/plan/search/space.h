// SPDX-License-Identifier: Apache-2.0
// Enumerates the layouts of a space.
#pragma once

#include <functional>

#include "plan/search/search.h"

namespace trireme::plan {

// Visits every combination whose degrees multiply to the number of GPUs and whose batch divides;
// broken_rule() checks the other rules. Fields that make no difference (a schedule without stages,
// ZeRO without data ranks) have one value. For models of more than some hundred blocks it visits
// only some numbers of chunks, and no schedule of more than 2^20 passes, unless the space names
// chunks or schedules.
void for_each_layout(const Job&, const spec::Machine&, const SearchOptions&,
                     const std::function<void(const Layout&)>&);

}  // namespace trireme::plan
