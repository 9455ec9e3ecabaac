// SPDX-License-Identifier: Apache-2.0
// Bench: what one rank of a run builds once and keeps as long as its process: the run's folder, the
// data, the device. What depends on the other ranks stands in incarnation.h.
#pragma once

#include <memory>
#include <optional>

#include "base/text/json.h"
#include "config/config.h"
#include "obs/run_dir.h"
#include "obs/run_owner.h"
#include "optim/lr_schedule.h"
#include "spec/model.h"
#include "train/batches/data_sets.h"
#include "train/batches/run_tokenizer.h"
#include "train/record/run_log.h"
#include "train/report/run_text.h"
#include "train/run/train_hooks.h"
#include "train/setup/ranks.h"
#include "train/setup/setup.h"

namespace trireme::train {

// Members are built in this order and destroyed in the reverse one: whatever may be refused cheaply
// comes before what takes time or memory, nothing is written, and the run's folder is released
// last.
struct Bench {
  // The configuration and the hooks must outlive it; `start` is that of the first epoch. Throws
  // ConfigError or IoError; no file has changed then.
  Bench(const config::Config&, obs::RunMode asked, const TrainHooks&, const RankStart& start);

  const double start_seconds;  // by obs::steady_seconds()
  const config::Config& config;
  const TrainHooks& hooks;
  const std::unique_ptr<obs::RunOwner> owner;  // on the first rank; null on others
  std::optional<RunListeners> listeners;       // on the first rank, from Run::begin() on
  RunLog run_log;  // ends the attempt when all members after it are destroyed
  const obs::RunMode mode;
  const spec::ModelSpec model;
  DataSets data;
  const RunTokenizer tokenizer;
  const base::Json data_contents;
  const optim::LrSchedule lr;
  Platform platform;
  std::optional<RunPeaks> peaks;  // on the first rank, once they are measured
};

// Returns what the run resumes from in an epoch: a later one continues with the newest checkpoint,
// unless its ranks have a newer state.
Resume resume_in(const RankStart&, const TrainHooks&);

}  // namespace trireme::train
