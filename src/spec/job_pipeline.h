// SPDX-License-Identifier: Apache-2.0
// The pipeline of a JobLayout: does its schedule exist for these ranks, micro-batches, layers and
// shards? Part of check_layout().
#pragma once

#include <vector>

#include "spec/job_degrees.h"
#include "spec/job_layout.h"

namespace trireme::spec {

// Rules of the schedule, its chunks and the cut, each with the nearest legal values. `layout` has
// its degrees; `has_batch`: its batch and its shards are legal, too.
std::vector<LayoutProblem> check_pipeline(const DegreeRules&, const JobLayout& layout,
                                          const LayoutNames&, bool has_batch);

}  // namespace trireme::spec
