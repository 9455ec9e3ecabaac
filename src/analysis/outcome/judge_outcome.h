// SPDX-License-Identifier: Apache-2.0
// judge(): the outcome of a run, by its files and by what the rules found in them.
#pragma once

#include <vector>

#include "analysis/diagnosis.h"

namespace trireme::analysis {

// `findings`: of all rules, in the order of diagnose().
Outcome judge(const RunRecord&, const std::vector<Finding>& findings, const Waterfall&);

}  // namespace trireme::analysis
