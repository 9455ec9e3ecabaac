// SPDX-License-Identifier: Apache-2.0
// The records of ranks.bin: columns that need the samples of all ranks, and the table's
// description.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "obs/files/rank_columns.h"
#include "obs/files/table_file.h"
#include "spec/parallel/axes.h"

namespace trireme::train {

// Computes, in the samples of all ranks of the mesh by rank, the lateness along each axis and the
// work relative to the mean of the rank's stage. Late is the rank that waits least: the lateness of
// a rank is the longest wait of its group along the axis minus its own, in the same steps and by
// each rank's own clock. It is 0 in a group of one.
void complete_samples(const spec::Sizes& mesh, std::span<obs::RankSample> samples);

// Where a rank runs, in a form that ranks can exchange.
struct RankPlace {
  char node[64] = {};  // names are cut off
  char device[64] = {};
};
RankPlace rank_place(const std::string& node, const std::string& device);
std::string node_name();  // of this host

obs::TableShape rank_table_shape(const spec::Sizes& mesh, std::span<const RankPlace> places);
// Returns the values of a record: [ranks][columns].
std::vector<float> rank_table_values(std::span<const obs::RankSample> samples);

}  // namespace trireme::train
