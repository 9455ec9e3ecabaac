// SPDX-License-Identifier: Apache-2.0
// The groups of rules, in the order in which rules are checked.
#pragma once

#include <vector>

#include "spec/layout/rules.h"

namespace trireme::spec {

std::vector<Rule> degree_rules();
std::vector<Rule> size_rules();  // of a micro-batch
std::vector<Rule> tensor_rules();
std::vector<Rule> context_rules();
std::vector<Rule> expert_rules();
std::vector<Rule> data_rules();
std::vector<Rule> format_rules();
std::vector<Rule> precision_rules();
std::vector<Rule> custom_schedule_rules();
std::vector<Rule> pipeline_rules();

// Is the layout's schedule a custom one?
inline bool is_custom(const RuleCase& c) { return c.l.custom_schedule.has_value(); }

// May tp have this value, for a model of these sizes, on this engine?
bool tp_is_legal(const ModelSizes&, int64_t tp);
// Returns the stages of a rank, also for a layout that is not settled.
int64_t chunks_of(const Layout&);

}  // namespace trireme::spec
