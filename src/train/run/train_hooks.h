// SPDX-License-Identifier: Apache-2.0
// TrainHooks: what train() reports to its caller while it runs, and what the caller may request.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/program_id.h"
#include "obs/files/rank_columns.h"
#include "train/checkpointing/run_checkpoints.h"
#include "train/numerics/drift_plant.h"
#include "train/record/run_prediction.h"
#include "train/trace/trace_steps.h"

namespace trireme::train {

// Every member may be left empty.
struct TrainHooks {
  std::function<void(std::string_view)> log;                          // a human-readable log line
  std::function<void(int64_t done)> begins;                           // before the first step
  std::function<void(int64_t done, std::string_view note)> progress;  // after a step is queued
  std::function<void(double seconds)> paused;  // by a validation, a save or an export
  // On the first rank, after each record of ranks.bin: what every rank reports, by rank.
  std::function<void(int64_t step, std::span<const obs::RankSample>)> sampled;
  const std::atomic<bool>* stop = nullptr;  // true: finish the step, save, return
  std::atomic<bool>* save = nullptr;        // true: save after this step; train() clears it
  TraceSteps trace;                         // written to trace_steps_<first>-<last>.json of the run
  std::filesystem::path cache_folder;       // used if system.cache_folder is empty
  Resume resume;
  bool takes_over = false;               // take the run's folder over, even from a live process
  base::ProgramId program;               // named in the run's files
  std::vector<std::string> environment;  // of programs that the run starts, as "NAME=value"
  MachineFiles machines;                 // for prediction.json
  DriftOptions drift;                    // planted, for tests of alarms
  double process_start = 0;              // in seconds since 1970; 0: when train() is called
};

}  // namespace trireme::train
