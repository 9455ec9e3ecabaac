// SPDX-License-Identifier: Apache-2.0
// The last pass of cleaning: writes kept documents and the list of removed ones, and counts both.
#pragma once

#include <string>
#include <vector>

#include "data/clean/clean.h"
#include "data/clean/clean_output.h"
#include "data/clean/outcome.h"
#include "data/clean/storage/spool.h"

namespace trireme::data {

struct CleanResult {
  const CleanOptions& options;
  const std::vector<Shard>& shards;
  const Spool& spool;
  const Outcomes& outcomes;
};

// Writes OUTPUT.removed.jsonl, OUTPUT.report.json and, if the options ask for it, the documents.
// Fills counts, clusters, examples and files of `report`. Throws IoError, also if there is no
// document to write.
void write_clean_files(const CleanResult&, const CleanFiles&, CleanReport& report);

}  // namespace trireme::data
