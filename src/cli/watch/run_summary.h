// SPDX-License-Identifier: Apache-2.0
// RunSummary: what `trireme runs` and `trireme watch` show of a run, read from the files of its
// folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analysis/diagnosis.h"
#include "board/run/checkpoint_list.h"

namespace trireme::cli {

// A rank and how much later than the others it arrives.
struct LateRank {
  size_t rank = 0;
  std::string name;                              // "rank 3"
  double compute_seconds = 0, late_seconds = 0;  // per step
};

struct RunSummary {
  analysis::RunRecord run;
  analysis::Diagnosis diagnosis;
  board::CheckpointList checkpoints;
  std::optional<double> loss;               // of the last step; may be NaN or infinite
  std::optional<double> validation_loss;    // the last one
  std::optional<double> tokens_per_second;  // of the last logged step, all ranks
  std::optional<double> mfu_percent;        // likewise
  std::optional<double> predicted_tokens_per_second;
  std::optional<double> age_seconds;  // since the run last wrote anything
  std::optional<double> eta_seconds;  // while it runs
  std::vector<LateRank> late_ranks;   // by lateness in the last record of ranks.bin
};

// Throws IoError if the folder holds no run. `now`: seconds since 1970.
RunSummary read_summary(const std::filesystem::path& folder, double now);

base::Json to_json(const RunSummary& summary);

// "12 s", "3 min", "5 h", "2 days"
std::string age_text(double seconds);
std::string step_text(const analysis::RunRecord& run);  // "120 of 1,000"

}  // namespace trireme::cli
