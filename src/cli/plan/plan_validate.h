// SPDX-License-Identifier: Apache-2.0
// trireme plan --validate: compares predictions with published runs.
#pragma once

#include "cli/shell/args.h"

namespace trireme::cli {

int validate_plans(const Args&);

}  // namespace trireme::cli
