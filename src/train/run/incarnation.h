// SPDX-License-Identifier: Apache-2.0
// Incarnation: what one rank builds once for one attempt of a run, before the first step: the run's
// folder, the data, the device, the plan, the connection to the other ranks, the engine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "config/config.h"
#include "engine/engine.h"
#include "obs/run_dir.h"
#include "obs/run_owner.h"
#include "optim/lr_schedule.h"
#include "spec/model.h"
#include "train/batches/data_sets.h"
#include "train/batches/run_tokenizer.h"
#include "train/record/run_log.h"
#include "train/report/run_text.h"
#include "train/run/train_hooks.h"
#include "train/setup/fit.h"
#include "train/setup/rank.h"
#include "train/setup/ranks.h"
#include "train/setup/setup.h"

namespace trireme::train {

// Members are built in this order and destroyed in the reverse one: whatever may be refused cheaply
// comes before what takes time or memory, nothing is written, and the engine goes before the
// communicators, the communicators before the device, and the run's folder is released last.
struct Incarnation {
  // All references must outlive it. Throws ConfigError, IoError or OutOfMemory; no file has changed
  // then. Collective.
  Incarnation(const config::Config&, obs::RunMode asked, const TrainHooks&, const RankStart&);

  const spec::Plan& plan() const { return job->plan; }
  int64_t step_samples() const { return step_tokens(plan()) / plan().seq_len; }  // of all ranks
  // Replaces the engine by one for the sequence length and batch sizes of a leg, with the same
  // training state, which passes through host memory. REQUIRES: no other object refers to the
  // engine. Collective.
  void change_leg(const Leg&);
  // The same with a larger budget of rows for experts. Throws OutOfMemory, with the itemised table,
  // if that does not fit.
  void change_row_budget(double);
  // The same with other blocks in bf16 (precision.bf16_blocks). If the engine would not fit, it is
  // rebuilt as it was, and the reason is returned; otherwise an empty text.
  std::string change_precision(const std::vector<int>& bf16_blocks);

  const double start_seconds;  // by obs::steady_seconds()
  const config::Config& config;
  const RankStart& start;
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
  // The number of steps that the newest checkpoint has, if the run is to be resumed, otherwise 0.
  const int64_t expected_step;
  const Leg* leg;                // of `engine`
  double row_budget;             // of `job`: that of the configuration, or a larger one
  std::vector<int> bf16_blocks;  // of `job`: those of the configuration, and ones that fell back
  std::unique_ptr<FitJob> job;   // of `leg`
  Rank rank;
  const RunPeaks peaks;  // on the first rank; empty on others
  std::unique_ptr<engine::Engine> engine;
  const bool has_given_weights;  // training.init_from; otherwise initialised from the seed
};

}  // namespace trireme::train
