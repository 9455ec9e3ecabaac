// SPDX-License-Identifier: Apache-2.0
// The model and its experts in Megatron-LM's flags.
#pragma once

#include "plan/import/described.h"
#include "plan/import/megatron_flags.h"

namespace trireme::plan {

// Sets job.model, job.experts, job.seq_len and dims, and tells in `taken` what was open. What is
// missing or wrong becomes a problem of `flags`; then nothing is set.
void read_megatron_model(MegatronFlags& flags, Described& described);

}  // namespace trireme::plan
