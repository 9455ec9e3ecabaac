// SPDX-License-Identifier: Apache-2.0
// Hints of verify(): from the pattern of errors to the part of the code that may cause it.
#pragma once

#include <string>

#include "train/verify/verify_checks.h"

namespace trireme::train {

// REQUIRES, for all: the layout completed its steps, and the check failed.
std::string loss_hint(const CheckedRun&, bool begins_wrong);
std::string norm_hint(bool begins_wrong);
std::string gradient_hint(const CheckedRun&);

}  // namespace trireme::train
