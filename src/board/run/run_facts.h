// SPDX-License-Identifier: Apache-2.0
// RunFacts: what the board shows of a run beside its curves, computed now and then from all files
// of its folder, because that takes longer than reading what was appended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/diagnosis.h"
#include "analysis/ledger.h"
#include "base/text/json.h"
#include "board/run/checkpoint_list.h"
#include "obs/files/rank_columns.h"

namespace trireme::board {

struct RunFacts {
  std::string name, group;
  analysis::RunState state = analysis::RunState::unknown;
  int64_t total_steps = 0;
  int64_t epoch = 0;  // of owner.json; 0: unknown
  double begin_time = 0, last_time = 0;
  base::Json config, plan, prediction, program;  // masked; null if the file is missing
  analysis::Diagnosis diagnosis;
  analysis::Ledger ledger;
  CheckpointList checkpoints;
  std::map<std::string, int64_t> events;  // by kind
  std::vector<std::string> layers;        // rows of layers.bin
  std::vector<std::string> numerics;      // rows of numerics.bin: "blocks.3 act"
  std::vector<std::string> rank_columns;
  base::Json ranks = base::Json::array();  // [{"rank","node","device","coord"}]
  // Column of ranks.bin -> values by rank in the last record; empty without a record.
  std::map<std::string, std::vector<double>> last_ranks;
  int64_t last_ranks_step = -1;
  double last_ranks_time = 0;
  std::optional<double> price_per_hour;
  std::vector<std::string> problems;
  std::string failure;  // why the folder could not be analysed; empty: it was
};

// Returns the name of a run whose files do not name it.
std::string name_of_folder(const std::filesystem::path& folder);

// Reads run.json and owner.json alone, in microseconds: enough for a list until read_facts() has
// ended. Never throws.
RunFacts first_facts_of(const std::filesystem::path& folder);
// Reads all files; never throws. `now`: seconds since 1970.
RunFacts read_facts(const std::filesystem::path& folder, double now);

}  // namespace trireme::board
