// SPDX-License-Identifier: Apache-2.0
// The times of operations and families of operations as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/measure/op_times.h"
#include "train/measure/roofline.h"

namespace trireme::cli {

// A table with a line for each family and one for the step.
std::string to_text(const train::Roofline&);
// A line for each entry, with the means over `steps`.
std::string to_text(const std::vector<train::OpTime>&, int64_t steps);

}  // namespace trireme::cli
