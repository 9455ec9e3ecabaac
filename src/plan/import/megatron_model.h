// SPDX-License-Identifier: Apache-2.0
// Reads the model and its experts from Megatron-LM's flags.
#pragma once

#include "plan/import/described.h"
#include "plan/import/megatron_flags.h"

namespace trireme::plan {

// Sets job.model, job.seq_len and dims, and adds assumptions to `assumed`. If a flag
// is missing or wrong, it adds a problem to `flags` and sets nothing.
void read_megatron_model(MegatronFlags& flags, Described& described);

}  // namespace trireme::plan
