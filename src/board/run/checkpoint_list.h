// SPDX-License-Identifier: Apache-2.0
// CheckpointList: the committed checkpoints of a run, newest first. Manifests are read, data is
// not, so damage within a file is not noticed (`trireme ckpt verify` notices it).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"

namespace trireme::board {

struct CheckpointEntry {
  int64_t step = 0;
  double time = 0;  // when it was committed, in seconds since 1970
  int64_t bytes = 0;
  std::string folder;   // relative to the run's folder
  std::string problem;  // empty: it is complete
  std::string mark;     // "good", "suspect" or "bad"; empty: it is not marked
  std::string why;      // it is marked so
};

struct CheckpointList {
  std::vector<CheckpointEntry> entries;
  int64_t keep = 0;  // of the configuration; 0: unknown
  // The steps that --resume auto would try, in this order.
  std::vector<int64_t> resume_steps;

  // Returns the first complete checkpoint of these; null: there is none.
  const CheckpointEntry* rollback_target() const;
};

// `config` is run.json, or null.
CheckpointList read_checkpoints(const std::filesystem::path& run, const base::Json& config);
base::Json to_json(const CheckpointList& list, double now);

}  // namespace trireme::board
