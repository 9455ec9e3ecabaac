// SPDX-License-Identifier: Apache-2.0
// A call of `trireme train`, for itself and for `trireme launch`, which refuses what its ranks
// would refuse.
#pragma once

#include "cli/shell/args.h"
#include "config/config.h"
#include "obs/run_dir.h"

namespace trireme::cli {

// The configuration that the words of the call and the text that they name (config_options.h) make.
// `world`: ranks that there are; 0: as many as the degrees ask for. Throws ConfigError with every
// problem, IoError.
config::Config train_config(const Args& args, const config::ConfigText& given, int world);

// Fresh, or overwrite with --overwrite.
obs::RunMode run_mode(const Args& args);
// Throws IoError or ConfigError if the run's folder would refuse this call. Changes nothing.
void check_run_folder(const Args& args, const config::Config& config);

}  // namespace trireme::cli
