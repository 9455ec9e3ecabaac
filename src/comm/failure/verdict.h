// SPDX-License-Identifier: Apache-2.0
// Verdict: why a run of processes has stopped making progress, and the ranks that are to blame. It
// is data: programs read kind, ranks, node and cause; the text is made for people. verdict_of() is
// a pure function of the reports on all ranks: how each ended, how old its last heartbeat is, which
// call it is in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/failure/position.h"
#include "comm/store/membership.h"
#include "comm/store/store.h"

namespace trireme::comm {

// The information in the store about one rank.
struct RankReport {
  std::optional<RankPosition> position;  // of its last heartbeat; none: it never sent one
  double silent_s = 0;                   // since that heartbeat
  std::string ended;      // "was killed by signal 9 (SIGKILL)"; empty: not known to have ended
  int64_t departure = 0;  // the order of the ranks that ended
};

enum class VerdictKind : uint8_t {
  died,       // a process has ended
  stalled,    // a rank has stopped, is unreachable, or did not enter a call that others wait in
  failed,     // a rank has reported an error
  fenced,     // another run has taken over
  stopped,    // a rank was requested to stop while others waited for it
  unfit,      // a rank has refused its configuration: another attempt would end in the same way
  no_memory,  // a rank had too little memory: so would another attempt with the same layout
};
const char* name_of(VerdictKind);

struct Verdict {
  VerdictKind kind = VerdictKind::failed;
  std::vector<int> ranks;  // world ranks that are to blame; empty: none in particular
  std::string node;        // the host of the first of them; empty: unknown
  std::string cause;       // without rank and node: "was killed by signal 9 (SIGKILL)"
  std::string text;        // one line

  bool operator==(const Verdict&) const = default;
};

// The exception of a run that has a verdict.
class Aborted : public base::CommAborted {
 public:
  explicit Aborted(Verdict of) : CommAborted(of.text), verdict(std::move(of)) {}
  Verdict verdict;
};

// Returns after how long without a heartbeat a rank counts as stopped or cut off, once something
// else has failed: short deadlines need a shorter limit, which has passed when they pass.
double silent_limit(double deadline_s);

struct VerdictOptions {
  double silent_limit_s = 1.5;  // silent_limit()
  double deadline_s = 0;        // the deadline that passed; 0: another failure
  int reporter = -1;            // the rank that found the failure; -1: another process
};

// Blames the rank that ended first; otherwise the one that has been silent longest; otherwise the
// ranks that the waiting ranks wait for, directly or through others. `reports` are by rank.
Verdict verdict_of(const std::vector<RankReport>& reports, const VerdictOptions& options);
// Returns a verdict about ranks that hang: they beat, but have not moved for longer than the limit
// of their phase (motion.h), wait for no other rank and are in no call that all ranks of its group
// have entered. None if there are none.
std::optional<Verdict> hang_of(const std::vector<RankReport>& reports);
// Returns "ranks wait for each other: ..." if `rank` is in a cycle of waiting ranks according to
// the reports; otherwise empty. Reports are of different moments, so only the same text some
// heartbeats later is certain.
std::string cycle_of(const std::vector<RankReport>& reports, int rank);

// Returns "rank 2", "ranks 0, 1 and 3"; long lists are shortened.
std::string ranks_text(const std::vector<int>& ranks);

// ---- verdicts and positions in the store
inline const std::string verdict_key = "verdict";
// The form in the store: JSON.
std::string stored_form(const Verdict&);
// Reads it. Anything else was written by a stranger and becomes the text of a failure without
// ranks.
Verdict verdict_from(const std::string& stored);
// Makes this the run's verdict, unless there is one. Returns the one that stands.
Verdict settle_verdict(Store&, const Verdict&);
// Returns the run's verdict; none if there is none yet.
std::optional<Verdict> stored_verdict(Store&);
// Returns a text as it is shown: without control characters, and never empty.
std::string verdict_text(const std::string& text);
// Returns what the members, which are named by rank and announce positions, report.
std::vector<RankReport> reports_of(std::span<const MemberFacts> ranks, double now);
// Reads them from the store. The cost for the store grows with the number of ranks, so only one
// process of the run should call it at a time.
std::vector<RankReport> read_reports(Store& store, int world);

}  // namespace trireme::comm
