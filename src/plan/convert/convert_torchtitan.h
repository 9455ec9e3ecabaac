// SPDX-License-Identifier: Apache-2.0
// Converts a run of TorchTitan to a configuration: model, layout and number formats as
// plan/import/from_torchtitan.h reads them, and also optimizer, learning rate, steps, clipping,
// seed, checkpoints, validation and logs. Absent keys have TorchTitan's defaults.
#pragma once

#include <string>

#include "plan/convert/conversion.h"

namespace trireme::plan {

// `file` is the text's name in messages. Without options.gpus a data_parallel_shard_degree of -1
// stays open. Throws ConfigError as from_torchtitan() does, and for keys that change the run and
// have no counterpart: initial weights of a PyTorch checkpoint, optimizers other than AdamW.
Conversion convert_torchtitan(const std::string& text, const std::string& file,
                              const ConvertOptions&, const FindStack&);

}  // namespace trireme::plan
