// SPDX-License-Identifier: Apache-2.0
// Converts Megatron's flags for data and validation. Trireme reads Megatron's data files.
#pragma once

#include <string>

#include "plan/convert/conversion.h"
#include "plan/import/megatron_flags.h"

namespace trireme::plan {

// Sets the data sets, with their weights, and the validation. `data` replaces those of the flags
// unless it is empty.
void convert_megatron_data(MegatronFlags& flags, const std::string& data, Conversion&);

}  // namespace trireme::plan
