// SPDX-License-Identifier: Apache-2.0
// A diagnosis as text: the sentence, the terms of a step, and the causes in order.
#pragma once

#include <string>

#include "analysis/diagnosis.h"

namespace trireme::cli {

// Predicted, measured and difference, term by term, with the residual; empty if nothing was
// measured.
std::string waterfall_text(const analysis::Waterfall&);
// Numbered, each with evidence and advice; empty if there are none.
std::string findings_text(const std::vector<analysis::Finding>&);

}  // namespace trireme::cli
