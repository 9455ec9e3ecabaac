// SPDX-License-Identifier: Apache-2.0
// Applies the rules of spec/layout/rules.h to the layouts of a job.
#pragma once

#include <string>
#include <vector>

#include "plan/job.h"
#include "spec/layout/rules.h"

namespace trireme::plan {

// Returns the names of a layout's fields in the planner's messages, which are those of
// spec/layout/layout_text.h.
const spec::LayoutNames& rule_names();
// Returns the sizes of the job's model.
spec::ModelSizes sizes_of(const Job&);

// Returns a message with its rule's id for every rule of any program that the layout breaks.
// `names` are those of the settings that the layout was read from.
std::vector<std::string> broken_rules(const Job&, const Layout&, const spec::LayoutNames& names);
// Returns the first of them; empty if the layout breaks none. It does not check memory.
std::string broken_rule(const Job&, const Layout&);
// Returns the first broken rule of any program or of Trireme's engine; empty if the engine can run
// the layout.
std::string missing_in_engine(const Job&, const Layout&);

}  // namespace trireme::plan
