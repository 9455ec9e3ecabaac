// SPDX-License-Identifier: Apache-2.0
// Verdict: the ranks that are to blame if a run of processes has stopped making progress. A pure
// function of the reports on all ranks: how each ended, how old its last heartbeat is, which call
// it is in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/failure/position.h"
#include "comm/store/store.h"

namespace trireme::comm {

// The information in the store about one rank.
struct RankReport {
  std::optional<RankPosition> position;  // of its last heartbeat; none: it never sent one
  double silent_s = 0;                   // since that heartbeat
  std::string ended;      // "was killed by signal 9 (SIGKILL)"; empty: not known to have ended
  int64_t departure = 0;  // the order of the ranks that ended
};

struct Verdict {
  std::vector<int> culprits;  // world ranks; empty: all wait and none lags behind
  std::string text;           // one line
};

struct VerdictOptions {
  double silent_limit_s = 1.5;  // a rank without a heartbeat for longer is stopped or cut off
  double deadline_s = 0;        // the deadline that passed; 0: another failure
  int reporter = -1;            // the rank that found the failure; -1: another process
};

// Blames the rank that ended first; otherwise the one that has been silent longest; otherwise the
// ranks that the waiting ranks wait for, directly or through others. `reports` are by rank.
Verdict verdict_of(const std::vector<RankReport>& reports, const VerdictOptions& options);
// Returns "ranks wait for each other: ..." if `rank` is in a cycle of waiting ranks according to
// the reports; otherwise empty. Reports are of different moments, so only the same text some
// heartbeats later is certain.
std::string cycle_of(const std::vector<RankReport>& reports, int rank);

// Returns the first rank that the text of a verdict blames; none if it blames no rank.
std::optional<int> culprit_in(const std::string& verdict);

// ---- verdicts and positions in the store
inline const std::string verdict_key = "verdict";
// Returns a stored verdict as it is shown: without control characters, and never empty.
std::string verdict_text(const std::string& stored);
std::string position_key(int rank);
// Reads the reports of all ranks from the store. The cost for the store grows with the number of
// ranks, so only one process of the run should call it at a time.
std::vector<RankReport> read_reports(Store& store, int world);

}  // namespace trireme::comm
