// SPDX-License-Identifier: Apache-2.0
// Converts a run of Megatron-LM to a configuration: model, layout and number formats as
// plan/import/from_megatron.h reads them, and also optimizer, learning rate, steps, clipping, seed,
// router, data, checkpoints, validation and logs. Absent flags have Megatron's defaults.
#pragma once

#include <string_view>

#include "plan/convert/conversion.h"

namespace trireme::plan {

// `text` has flags, or is a script with flags; `source` names it in messages. Without a number of
// GPUs in the options or the flags, the degree of data parallelism stays open. Throws ConfigError
// as from_megatron() does, and for flags that change the run and have no counterpart: weights of a
// Megatron checkpoint, optimizers other than Adam, and if --lr or the number of steps is missing.
Conversion convert_megatron(std::string_view text, const std::string& source, const ConvertOptions&,
                            const FindStack&);

}  // namespace trireme::plan
