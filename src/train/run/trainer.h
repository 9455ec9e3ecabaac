// SPDX-License-Identifier: Apache-2.0
// Trainer: a whole run from a configuration: data, steps, validation, metrics, weights.
#pragma once

#include "comm/world/rank_env.h"
#include "config/config.h"
#include "obs/run_dir.h"
#include "train/report/train_summary.h"
#include "train/run/train_hooks.h"

namespace trireme::train {

// Runs the rank that this process is, or all ranks of the configuration as threads where `info`
// knows of no others (ranks.h). Only the first rank calls `progress` and writes files; `line` may
// be called by any rank, one at a time. The summary is the first rank's, and of another process's
// rank it has what that rank knows. `mode` is fresh or overwrite; a run that is to be resumed and
// whose folder holds a run is opened as such.
//
// Throws ConfigError, IoError or OutOfMemory before anything is trained if data, model, folders or
// memory do not fit, and then no file has changed; CommAborted with a verdict when ranks lose each
// other; Fenced when another process has taken the run's folder over. The host waits for the
// device at steps that log, validate or save, at the first and the last one, and nowhere else. With
// several ranks it also waits about once a second, at steps that all ranks know beforehand, where
// they tell each other whether one was asked to stop or to save.
TrainSummary train(const config::Config&, obs::RunMode, const TrainHooks&,
                   const comm::RankInfo& info = {});

}  // namespace trireme::train
