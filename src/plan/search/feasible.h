// SPDX-License-Identifier: Apache-2.0
// Explains why no layout answers a question, and gives the nearest value that does.
#pragma once

#include <string>

#include "plan/search/search.h"

namespace trireme::plan {

// Returns what the machine's file lacks to price a question: the peak of a precision, or the
// network between domains. Empty: nothing.
std::string missing_in_machine(const spec::Machine&, int64_t gpus, Precision);

// Returns why a space has no layout at all. REQUIRES: for_each_layout() visits none.
std::string why_empty(const Job&, const SearchOptions&);

}  // namespace trireme::plan
