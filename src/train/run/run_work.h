// SPDX-License-Identifier: Apache-2.0
// What a run is going to do, in the lines that it prints before its first step: tokens and epochs,
// validations, checkpoints, exported weights, and the disk that they need.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"

namespace trireme::train {

struct RunWork {
  int64_t first_step = 1;  // the first of this attempt
  int64_t step_samples = 0;
  // Those of all remaining steps, if steps differ; -1: all have step_samples of training.seq_len
  // tokens.
  int64_t samples = -1, tokens = -1;
  int64_t training_samples = 0;                   // in one epoch
  int64_t samples_before = 0, tokens_before = 0;  // in earlier attempts
  int64_t held_out_samples = 0;                   // in all validation sets; 0: none is validated
  int64_t validated_samples = -1;                 // of them; -1: those of one set
  int64_t validations = 1;                        // validation sets
  int64_t checkpoint_bytes = 0;                   // one checkpoint, all ranks; 0: none is saved
  int64_t checkpoints_before = 0;                 // in the folder already
  int64_t weights_bytes = 0;                      // one export; 0: the run exports none
  int64_t free_bytes = -1;                        // on the disk of the run's folder; -1: not known
};

std::vector<std::string> describe_work(const config::Config&, const RunWork&);

// Returns the bytes that checkpoints and weights may take at one time beyond those that exist; -1:
// no bound.
int64_t disk_bytes(const config::Config&, const RunWork&);

// Returns the bytes of the tensors of one export.
int64_t exported_bytes(const config::Config&);

// Returns the free bytes on the disk of a folder, which need not exist yet; -1: not known.
int64_t free_bytes(const std::filesystem::path& folder);

}  // namespace trireme::train
