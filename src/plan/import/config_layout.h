// SPDX-License-Identifier: Apache-2.0
// The job and the layout of a configuration that was loaded.
#pragma once

#include "config/config.h"
#include "plan/job.h"

namespace trireme::plan {

Job job_of(const config::Config&);
// A schedule of the user's own counts as 1F1B.
Layout layout_of(const config::Config&);

}  // namespace trireme::plan
