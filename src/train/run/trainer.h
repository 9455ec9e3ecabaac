// SPDX-License-Identifier: Apache-2.0
// Trainer: a whole run from a configuration: data, steps, validation, metrics, weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/program_id.h"
#include "comm/world/rank_env.h"
#include "config/config.h"
#include "obs/terminal/curve.h"
#include "obs/run_dir.h"
#include "spec/plan.h"
#include "train/checkpointing/run_checkpoints.h"
#include "train/report/trace.h"

namespace trireme::train {

// What a run reports to its caller, and what its caller asks of it. Every member may be left empty.
struct TrainHooks {
  std::function<void(std::string_view)> line;                         // a human-readable log line
  std::function<void(int64_t done)> begins;                           // before the first step
  std::function<void(int64_t done, std::string_view note)> progress;  // after a step is queued
  const std::atomic<bool>* stop = nullptr;  // true: finish the step, save, return
  std::atomic<bool>* save = nullptr;        // true: save after this step; set back to false
  TraceSteps trace;                         // written to trace_steps_<first>-<last>.json of the run
  std::filesystem::path cache_folder;       // where system.cache_folder is empty
  Resume resume;
  bool takes_over = false;  // the run's folder, also from a process that lives
  base::ProgramId program;  // which the run's files name
};

// What one rank took.
struct RankFigures {
  spec::MemoryTable predicted, measured;
  int64_t ledger_bytes = 0;
  RunCheckpoints::Memory checkpoints;  // on the host
  // Sent to others in the run's steps.
  int64_t predicted_traffic_bytes = 0, counted_traffic_bytes = 0;
};

struct TrainSummary {
  int64_t steps = 0;          // the run has taken, earlier attempts included
  int64_t attempt_steps = 0;  // this attempt has taken; tokens and times below count these
  int64_t tokens = 0;
  int64_t total_tokens = 0;           // the run has trained on, earlier attempts included
  int64_t skipped_steps = 0;          // by the run
  int64_t attempt_skipped_steps = 0;  // by this attempt
  int64_t parameters = 0;
  double seconds = 0;            // of training steps, without start-up, validation and saving
  double startup_seconds = 0;    // until the first step was finished
  double tokens_per_second = 0;  // median over logged stretches
  std::optional<double> loss;    // after this attempt's last step
  std::optional<double> validation_loss;
  std::optional<double> mfu, hfu, gemm_utilisation;
  double peak_flops = 0;  // that mfu and hfu refer to
  std::string peak_source;
  bool was_stopped = false, was_captured = false;
  int64_t saved_step = -1;     // the step this attempt saved last; -1: none
  std::string export_problem;  // why the last export failed; empty: it did not
  // Of the rank whose measured bytes are furthest from the predicted ones; of equals, the largest.
  spec::MemoryTable predicted, measured;
  RunCheckpoints::Memory checkpoint_memory;         // likewise; zero in a run that does not save
  std::vector<RankFigures> ranks;                   // by rank
  int64_t ledger_bytes = 0, driver_used_bytes = 0;  // driver: by anyone; 0 on a CPU
  std::string hardware;
  int64_t resumed_from = 0;  // the step that was loaded; 0: none
  SaveFigures checkpoints;
  int64_t checkpoint_bytes = 0;  // of one, all ranks' files, as predicted; 0: none is saved
  std::filesystem::path run_folder, weights, trace, picture;  // empty if none was written
  std::vector<obs::CurvePoint> loss_curve, validation_curve;
};

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

// Predicted and measured bytes side by side, as a table.
std::string memory_table_text(const spec::MemoryTable& predicted, const spec::MemoryTable& measured,
                              const RunCheckpoints::Memory& checkpoints = {});
// A line for every rank: memory, and bytes that it sent.
std::string ranks_table_text(const TrainSummary&);

}  // namespace trireme::train
