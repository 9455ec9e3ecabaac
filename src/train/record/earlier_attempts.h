// SPDX-License-Identifier: Apache-2.0
// What earlier attempts of a run recorded about their time, and the spans that the next attempt
// adds to phases.jsonl for them: the end of an attempt that was killed, and the time between
// attempts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analysis/ledger.h"
#include "obs/files/phase_log.h"

namespace trireme::train {

struct EarlierAttempts {
  int64_t attempt = 0;                       // the last one; 0: none has recorded anything
  double end = 0;                            // of its last span, in seconds since 1970
  obs::Phase current = obs::Phase::unknown;  // at that time
  int64_t last_step = 0;                     // the highest one that any attempt recorded
  std::string end_reason;                    // of its end event; empty: it was killed
  double alive_until = 0;                    // the last sign of life of its process
  // What the launcher recorded when it ended the job, in seconds since 1970.
  struct Verdict {
    double failed_at = 0;   // a rank was found dead or silent
    double time = 0;        // of the verdict
    double ended_at = 0;    // all processes had ended
    bool restarts = false;  // the launcher starts the job again
  };
  std::optional<Verdict> verdict;
  analysis::LedgerBuilder ledger;  // of all earlier attempts
};

// Returns when the owner of the run's folder last renewed its lease; 0: there was none.
double last_lease(const std::filesystem::path& folder);
// `alive_until`: last_lease() before this attempt took the folder.
EarlierAttempts read_earlier_attempts(const std::filesystem::path& folder, double alive_until);

// Returns the spans from the end of the last attempt to `begin`, the start of attempt `attempt`:
// those of a killed attempt up to its last sign of life, then those between the attempts. None if
// there was no earlier attempt, or if it ended after `begin`.
std::vector<obs::PhaseRecord> records_between(const EarlierAttempts&, int64_t attempt,
                                              double begin);

}  // namespace trireme::train
