// SPDX-License-Identifier: Apache-2.0
// Questions that no layout answers: what stands in the way, and the nearest question that has one.
#pragma once

#include <string>

#include "plan/search/search.h"

namespace trireme::plan {

// What the machine's file does not describe, so that no time would be a number: a precision without
// a peak, domains without a network between them. Empty: nothing.
std::string missing_in_machine(const spec::Machine&, int64_t gpus, Precision);

// Why a space has no layout at all. REQUIRES: for_each_layout() gives none.
std::string why_empty(const Job&, const SearchOptions&);

}  // namespace trireme::plan
