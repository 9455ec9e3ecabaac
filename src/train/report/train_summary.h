// SPDX-License-Identifier: Apache-2.0
// TrainSummary: what train() returns about a run and about this attempt of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "obs/terminal/curve.h"
#include "spec/plan.h"
#include "train/checkpointing/run_checkpoints.h"
#include "train/record/run_prediction.h"
#include "train/report/losses/validation_figures.h"

namespace trireme::train {

// Memory and traffic of one rank, predicted and measured.
struct RankFigures {
  spec::MemoryTable predicted, measured;
  int64_t ledger_bytes = 0;
  HostMemory host;
  // Sent to other ranks in the run's steps.
  int64_t predicted_traffic_bytes = 0, counted_traffic_bytes = 0;
};

struct TrainSummary {
  int64_t steps = 0;          // of the run, earlier attempts included
  int64_t attempt_steps = 0;  // of this attempt; `tokens` and the times below count these
  int64_t tokens = 0;
  int64_t total_tokens = 0;           // of the run, earlier attempts included
  int64_t skipped_steps = 0;          // of the run
  int64_t attempt_skipped_steps = 0;  // of this attempt
  int64_t parameters = 0;
  double seconds = 0;            // of training steps, without start-up, validation and saving
  double startup_seconds = 0;    // until the first step was finished
  double tokens_per_second = 0;  // median over the spans between two logged steps
  std::optional<double> loss;    // after this attempt's last step
  std::optional<double> validation_loss;
  std::optional<ValidationFigures> validation;  // the last one
  uint64_t first_batch_hash = 0;  // content of the attempt's first batch, over all ranks
  std::optional<double> mfu, hfu, gemm_utilisation;
  double peak_flops = 0;  // the peak that mfu and hfu refer to
  std::string peak_source;
  bool was_stopped = false, was_captured = false;
  bool has_diverged = false;   // on all ranks
  std::string divergence;      // on the first rank: "diverged since step 12: the loss is ..."
  int64_t saved_step = -1;     // the last step that this attempt saved; -1: none
  std::string save_problem;    // on the first rank: why the last save failed; empty: it succeeded
  std::string export_problem;  // why the last export failed; empty: it succeeded
  // The memory tables of one rank; set_ranks() chooses it.
  spec::MemoryTable predicted, measured;
  HostMemory host_memory;          // chosen likewise, each purpose for itself
  CopyFigures copies;              // on the first rank
  std::vector<RankFigures> ranks;  // by rank
  int64_t ledger_bytes = 0;
  int64_t driver_used_bytes = 0;  // on this GPU by all processes; 0 on a CPU
  std::string hardware;
  std::optional<RunPrediction> prediction;  // on the first rank
  int64_t resumed_from = 0;                 // the step that was loaded; 0: none
  SaveFigures checkpoints;
  int64_t checkpoint_bytes = 0;  // predicted size of one checkpoint, all ranks; 0: none is saved
  std::filesystem::path run_folder, weights, trace, picture;  // empty if not written
  std::vector<obs::CurvePoint> loss_curve, validation_curve;
};

// Sets `ranks`, and the memory tables to those of the rank whose measured bytes differ most from
// the predicted ones; among equals, of the rank with the most predicted bytes. Host memory is
// chosen by the same rule, each purpose for itself. REQUIRES: at least one rank.
void set_ranks(TrainSummary&, std::vector<RankFigures> ranks);

// Returns whether the state after the last step should have been saved and was not.
bool is_unsaved(const TrainSummary&);
// Returns the step of the newest checkpoint that this attempt knows; 0 or less: there is none.
int64_t newest_checkpoint(const TrainSummary&);
// Returns what `trireme ckpt export` would make in place of weights that could not be exported,
// with the step: "`trireme ckpt export runs/kjv` makes them from the checkpoint of step 40".
std::string export_advice(const TrainSummary&, const std::string& run_folder);

}  // namespace trireme::train
