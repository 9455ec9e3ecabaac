// SPDX-License-Identifier: Apache-2.0
// From what is wrong to the seam where it may come from.
#pragma once

#include <string>

#include "train/verify/verify_checks.h"

namespace trireme::train {

// REQUIRES, for all: the layout came to its end, and the check failed.
std::string loss_hint(const CheckedRun&, bool begins_wrong);
std::string norm_hint(bool begins_wrong);
std::string gradient_hint(const CheckedRun&);

}  // namespace trireme::train
