// SPDX-License-Identifier: Apache-2.0
// What `calibrate` does with a measurement that a busy machine has spoilt.
#pragma once

#include <string>

#include "spec/machine.h"

namespace trireme::plan {

// Whole steps that took far from what their operations predict leave step_factor or time_error
// outside what a machine file may hold. Sets them to the nearest that it may, and returns a
// sentence that says so and what to do; empty: they were inside.
std::string settle_noise(spec::Machine&);

}  // namespace trireme::plan
