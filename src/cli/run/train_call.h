// SPDX-License-Identifier: Apache-2.0
// The checks of a call of `trireme train`, shared with `trireme launch`, which makes them before it
// starts ranks.
#pragma once

#include <string>

#include "cli/shell/args.h"
#include "config/config.h"
#include "obs/run_dir.h"

namespace trireme::cli {

// Loads the configuration from the text `given` and the options of the call (config_options.h).
// Throws ConfigError with all problems, or IoError.
config::Config asked_config(const Args& args, const config::ConfigText& given, int world);

// The same, and solves it for `world` ranks and the checkpoint that the call resumes from (train::plan_for).
// Throws ConfigError with all problems, or IoError.
config::Config train_config(const Args& args, const config::ConfigText& given, int world);

// Throws ConfigError or IoError if a run with these options could not begin: every rank would.
void check_run_options(const Args& args, const config::Config& config);

// Returns the folder of the run, also if other keys of the call are wrong; empty if it is unknown.
std::string run_folder_of(const Args& args);

// Returns overwrite with --overwrite, otherwise fresh.
obs::RunMode run_mode(const Args& args);
// Throws IoError or ConfigError if this call may not use the run's folder. Changes nothing.
void check_run_folder(const Args& args, const config::Config& config);

}  // namespace trireme::cli
