// SPDX-License-Identifier: Apache-2.0
// Handles a measurement of `calibrate` that other load on the machine has distorted.
#pragma once

#include <string>

#include "spec/machine.h"

namespace trireme::plan {

// If whole steps take far from what their operations predict, step_factor or time_error is outside
// the range of a machine file. Clamps them to the range and returns a warning; empty if they were
// inside.
std::string clamp_noise(spec::Machine&);

}  // namespace trireme::plan
