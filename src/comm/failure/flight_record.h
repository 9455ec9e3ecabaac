// SPDX-License-Identifier: Apache-2.0
// The files of a flight record, in the form of PyTorch's flight recorder, so that its analyser
// (python -m torch.distributed.flight_recorder.fr_trace FOLDER) and NVIDIA's (fr_attribution of
// nvidia-resiliency-ext) read them and report the ranks that are missing. Both compare the files of
// all ranks, which has three consequences:
//
// - A group is identified by a number that is equal on all ranks: a hash of the group's name and
//   ranks, which all its members share.
// - The two ranks of a message form a separate group ("pp 0-1"), as in NCCL. The analysers expect
//   every rank of a group in every call; in the group of the whole pipeline a message would always
//   lack the ranks that take no part in it. Messages of a pair are numbered over both directions.
// - A call that is not complete is "scheduled", whether or not its work has begun: PyTorch writes
//   this unless the timing of calls is enabled, and the analysers search for that word.
//   `trireme_state` contains the recorder's state: scheduled, started, completed or failed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_fwd.h"
#include "comm/failure/flight_recorder.h"

namespace trireme::comm {

// Returns the record of rank `world_rank`; `made_ns` is when its recorder was created, since 1970.
base::Json flight_record(const std::vector<FlightRecorder::Entry>& entries, int world_rank,
                         int64_t made_ns);

// Returns the number of a group as text.
std::string group_number(std::string_view name, const std::vector<int>& ranks);

// Names of the files of a rank in the folder of flight records: the human-readable JSON
// file, which NVIDIA's analyser reads, too, and the same record as a pickle, the only format that
// PyTorch's loads. The analysers read the rank from the end of the name; PyTorch's loads every file
// whose name has the prefix before it, so the two prefixes differ.
std::string flight_json_name(int rank);    // "rank_3.json"
std::string flight_pickle_name(int rank);  // "_dump_3"

// Writes both files of `record` into `folder`, which exists, the JSON file last: where it is, the
// record is complete. Throws IoError.
void write_flight_record(const std::filesystem::path& folder, int rank, const base::Json& record);

}  // namespace trireme::comm
