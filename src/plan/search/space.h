// SPDX-License-Identifier: Apache-2.0
// The layouts of a space, one after the other.
#pragma once

#include <functional>

#include "plan/search/search.h"

namespace trireme::plan {

// Every combination whose degrees multiply to the GPUs and whose batch can be dealt out;
// other rules are broken_rule()'s. Things that make no difference (a schedule without stages, ZeRO
// without data ranks) are given once. Of models of more than some hundred blocks only some numbers
// of chunks are given, and no schedule of more than 2^20 passes, unless chunks or schedules are
// asked for.
void for_each_layout(const Job&, const spec::Machine&, const SearchOptions&,
                     const std::function<void(const Layout&)>&);

}  // namespace trireme::plan
