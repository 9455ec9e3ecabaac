// SPDX-License-Identifier: Apache-2.0
// The phases of a configuration with every open field filled in: what the run does from which step
// on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/apply.h"
#include "config/config.h"

namespace trireme::config {

struct PhaseSettings {
  std::string name;
  // Where it begins, as in the configuration; -1: not given. The first phase begins at step 1.
  int64_t from_step = -1, from_tokens = -1;
  int64_t seq_len = 0, global_batch_size = 0, local_batch_size = 0;
  double lr = 0;  // 0: that of the schedule, times lr_factor
  double lr_factor = 1;
  std::vector<double> weights;  // by data set of dataset_list()
  bool operator==(const PhaseSettings&) const = default;
};

// Returns all phases, at least one. The run begins with the keys of [training]; a [[phase]] that
// begins at step 1 or at 0 tokens replaces that first phase. REQUIRES: a configuration that
// solved() returned.
std::vector<PhaseSettings> phases_of(const Config&);

// Returns the data sets of the configuration: [[training.dataset]], or the one of
// training.dataset_path.
std::vector<Dataset> dataset_list(const Config&);
// Returns the validation sets: [[validation.dataset]], or the one of validation.dataset_path;
// empty: a part of every training data set is held out.
std::vector<ValidationDataset> validation_list(const Config&);

// Returns the configuration as it is during a phase: its sequence length and batch sizes.
Config with_phase(Config, const PhaseSettings&);

// Fills in names of data sets and phases. Called by load().
void solve_lists(Config&);
// Reports broken rules between data sets, phases and other keys. Called by solved(), after the
// layout is solved.
void check_lists(const Config&, Report&);

}  // namespace trireme::config
