// SPDX-License-Identifier: Apache-2.0
// train(): a complete run from a configuration: data, steps, validation, metrics, weights.
#pragma once

#include "comm/world/rank_env.h"
#include "config/config.h"
#include "obs/run_dir.h"
#include "train/report/train_summary.h"
#include "train/run/train_hooks.h"

namespace trireme::train {

// Runs the rank of this process, or all ranks of the configuration as threads if `info` describes a
// single process (ranks.h). Only the first rank calls `progress` and writes files; any rank may
// call `log`, one at a time. Returns the summary of the first rank, or of this process's rank,
// which has no paths of files then. `mode` is fresh or overwrite; if the run is to be resumed and
// its folder contains a run, the folder is opened to resume.
//
// Throws ConfigError, IoError or OutOfMemory before the first step if data, model, folders or
// memory do not fit, and then no file has changed; CommAborted with a verdict if ranks lose
// contact; Fenced if another process has taken the run's folder over. The host waits for the device
// at steps that log, validate or save, at the first and the last one, and nowhere else. With
// several ranks it also waits about once a second, at steps that all ranks compute beforehand, to
// exchange requests to stop or to save.
TrainSummary train(const config::Config&, obs::RunMode, const TrainHooks&,
                   const comm::RankInfo& info = {});

}  // namespace trireme::train
