// SPDX-License-Identifier: Apache-2.0
// RecoveryTimes: where the time went from the loss of a rank to the first new step, by part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text/json.h"

namespace trireme::train {

// All times are in seconds since 1970, by the clock of the host that took them.

// The loss that ended an epoch, as its launcher recorded it.
struct Loss {
  double lost_at = 0, verdict_at = 0;
  std::vector<int> ranks;  // to blame
};
// Reads it from the record of a run; none: the launcher has not recorded it.
std::optional<Loss> loss_of_epoch(const std::filesystem::path& run_folder, int64_t epoch);

// The marks of one rank that enters an epoch after the first.
struct EpochMarks {
  double left_at = 0;  // it had ended the groups of the epoch before; 0: its process is new
  double up_at = 0;    // its new process waited for the epoch
  int64_t step = 0;    // the last one of the epoch before
};

// What one rank knows of the way to its epoch.
struct EpochEntry {
  double left_at = 0;       // the last rank had left the epoch before; 0: all processes are new
  double up_at = 0;         // the last new process waited for the epoch; 0: there is none
  double connected_at = 0;  // groups of the new epoch were connected
  double restored_at = 0;   // the engine had the state
  int64_t reached = 0;      // the last step that any rank had finished
};
// `marks`: of all ranks.
EpochEntry epoch_entry(std::span<const EpochMarks> marks, double connected_at, double restored_at);

// In seconds. The first five follow each other and sum to `all`; a part that ended before the one
// before it did, as clocks of several hosts may have it, is 0.
struct RecoveryTimes {
  double detect = 0;   // from the loss to the verdict
  double abort = 0;    // until all ranks had ended their groups
  double reform = 0;   // until the groups of the new epoch were connected
  double restore = 0;  // until the engine had the state
  double repeat = 0;   // until the first step had finished that no rank had finished before
  double all = 0;
  double start =
      0;  // from the verdict until the last new process was up; parts of abort and reform
};
RecoveryTimes recovery_times(const Loss&, const EpochEntry&, double finished_at);

// The five parts by name, in their order.
std::vector<std::pair<const char*, double>> parts_of(const RecoveryTimes&);
// "0.52 s: detect 0.01, abort 0.12, reform 0.21, restore 0.04, repeat 0.14".
std::string to_text(const RecoveryTimes&);
// Data of an event of kind `recovered` (docs/formats.md).
base::Json to_json(const RecoveryTimes&);

}  // namespace trireme::train
