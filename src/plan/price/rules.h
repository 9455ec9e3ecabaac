// SPDX-License-Identifier: Apache-2.0
// The rule book (spec/layout/rules.h), asked about a job's layouts.
#pragma once

#include <string>
#include <vector>

#include "plan/job.h"
#include "spec/layout/rules.h"

namespace trireme::plan {

// What messages of the planner call a layout's fields: the words of spec/layout/layout_text.h.
const spec::LayoutNames& rule_names();
// With the job's experts.
spec::ModelSizes sizes_of(const Job&);

// Every rule of any program that the layout breaks, with its id; `names` are those of the settings
// that the layout was read from.
std::vector<std::string> broken_rules(const Job&, const Layout&, const spec::LayoutNames& names);
// The first rule of any program that the layout breaks, with its id; empty: none. Memory is not
// looked at.
std::string broken_rule(const Job&, const Layout&);
// The first rule of any program or of Trireme's engine that it breaks; empty: the engine runs it.
std::string missing_in_engine(const Job&, const Layout&);

}  // namespace trireme::plan
