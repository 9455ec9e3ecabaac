// SPDX-License-Identifier: Apache-2.0
// Limits on layouts, as `trireme plan` is given them: --tp 1,2 --schedule 1f1b and the like.
#pragma once

#include "cli/shell/args.h"
#include "plan/search/search.h"

namespace trireme::cli {

// Throws ConfigError for what is no value, and for what only --unaudited prices.
// Another program's layouts are not the engine's: none of them is audited.
plan::Space plan_limits(const Args&, bool is_other_program);

}  // namespace trireme::cli
