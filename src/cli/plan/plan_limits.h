// SPDX-License-Identifier: Apache-2.0
// The options of `trireme plan` that limit the layouts, such as --tp 1,2 and --schedule 1f1b.
#pragma once

#include "cli/shell/args.h"
#include "plan/search/search.h"

namespace trireme::cli {

// Throws ConfigError for a bad value, and for one that needs --unaudited. Layouts of another
// program are not run by the engine, so --unaudited is implied for them.
plan::Space plan_limits(const Args&, const plan::Job&, int64_t gpus, bool is_other_program);

}  // namespace trireme::cli
