// SPDX-License-Identifier: Apache-2.0
// Verdict: whose fault it is that a run of processes stands still. A pure function of what is known
// of every rank from outside: how it ended, how long it has been silent, where it stands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/failure/position.h"
#include "comm/store/store.h"

namespace trireme::comm {

// What is known of one rank.
struct RankReport {
  std::optional<RankPosition> position;  // the last it told; none: never heard of
  double silent_s = 0;                   // since then
  std::string ended;      // "was killed by signal 9 (SIGKILL)"; empty: nobody saw it end
  int64_t departure = 0;  // of those that ended: who was first
};

struct Verdict {
  std::vector<int> culprits;  // ranks of the world; empty: all wait and nobody lags
  std::string text;           // one line
};

struct VerdictOptions {
  double silent_limit_s = 1.5;  // a rank that told nothing for longer is stopped or cut off
  double deadline_s = 0;        // that has passed; 0: something else went wrong
  int reporter = -1;            // the rank that complains; -1: somebody else
};

// First who ended, then who is silent, then whom the waiting ranks wait for, through others if need
// be. `reports` by rank.
Verdict verdict_of(const std::vector<RankReport>& reports, const VerdictOptions& options);
// "ranks wait for each other: ..." if `rank` is in a circle of ranks that do, as the reports have
// it; else empty. Reports are of different moments: the same text some beats later is certain.
std::string cycle_of(const std::vector<RankReport>& reports, int rank);

// Returns the first rank that the text of a verdict blames; none: it blames no single one.
std::optional<int> culprit_in(const std::string& verdict);

// ---- how the store keeps it
inline const std::string verdict_key = "verdict";
// A verdict as the store has it, to be shown: without control characters, and never empty.
std::string verdict_text(const std::string& stored);
std::string position_key(int rank);
// What the store knows about all ranks. It costs the store as much as there are ranks: for one
// process of the run at a time.
std::vector<RankReport> read_reports(Store& store, int world);

}  // namespace trireme::comm
