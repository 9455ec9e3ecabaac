// SPDX-License-Identifier: Apache-2.0
// Writes traced steps of all ranks as one Chrome trace (chrome://tracing, ui.perfetto.dev): every
// rank is a process, every stream of it a thread, and its host another. Flows lead from a send to
// its receive, and from where the host queued a call, or the first op of a layer, to where it ran.
// Categories of slices: step, compute, memory, optimizer, communication, wait, host; of flows:
// message, queue.
#pragma once

#include <vector>

#include "obs/output_file.h"
#include "train/trace/rank_trace.h"

namespace trireme::train {

// Writes the whole file. `traces` are ordered by rank and may be empty. Throws IoError.
void write_trace(obs::OutputFile&, const std::vector<RankTrace>& traces);

}  // namespace trireme::train
