// SPDX-License-Identifier: Apache-2.0
// The files of a flight record, in the form of PyTorch's flight recorder, so that its analyser
// (python -m torch.distributed.flight_recorder.fr_trace FOLDER) and NVIDIA's (fr_attribution of
// nvidia-resiliency-ext) read them and name the ranks that are missing. Both compare the files of
// all ranks, which decides three things here:
//
// - A group is known by a number that is equal on all ranks. It is a hash of the group's name and
//   ranks, which is all that its members are sure to share.
// - The two ranks of a message are a group of their own ("pp 0-1"), as in NCCL. The analysers
// expect
//   every rank of a group at every call; in a pipeline's whole group a message would always miss
//   the ranks that take no part in it. Messages of a pair are numbered over both directions.
// - A call that is not complete is "scheduled" whether or not its work has begun: PyTorch writes
//   so unless it was asked to time calls, and the analysers look for that word. `trireme_state`
//   tells what the recorder knows: scheduled, started, completed or failed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "comm/failure/flight_recorder.h"

namespace trireme::comm {

// Returns the record of rank `world_rank`; `made_ns` is when its recorder was made, since 1970.
base::Json flight_record(const std::vector<FlightRecorder::Entry>& entries, int world_rank,
                         int64_t made_ns);

// Returns the number of a group as text.
std::string group_number(std::string_view name, const std::vector<int>& ranks);

// Names of the files of a rank in the folder of flight records: the JSON file for people and for
// NVIDIA's analyser, and the same record as a pickle, which is all that PyTorch's loads. The
// analysers take the rank from the end of the name; PyTorch's takes every file whose name has the
// text before it, so the two differ there.
std::string flight_json_name(int rank);    // "rank_3.json"
std::string flight_pickle_name(int rank);  // "_dump_3"

// Writes both files of `record` into `folder`, which exists. Throws IoError.
void write_flight_record(const std::filesystem::path& folder, int rank, const base::Json& record);

}  // namespace trireme::comm
