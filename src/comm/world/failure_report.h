// SPDX-License-Identifier: Apache-2.0
// One message for the failure of a run, however many of its processes have it. Rank 0 reports as
// long as it lives; other ranks end silently once it has, and speak where it does not. A rank that
// fails before it has joined the run tells the others through the store, like one that fails later,
// so that they do not wait for it.
#pragma once

#include <functional>
#include <string>

#include "comm/store/store.h"
#include "comm/world/rank_env.h"

namespace trireme::comm {

struct FailureReporter {
  std::function<void()> print;       // the message, as the one report of the run
  std::function<void()> print_line;  // what this rank alone has to add
};

struct ReportTimeouts {
  double rank_zero_s = 3;  // until another rank reports in place of rank 0
  double printing_s = 3;   // for a rank that has begun to report, and for the others to learn of it
  double joining_s = 5;    // for each other, of ranks that fail before they have joined
};

// For a rank of a run whose verdict stands; `text` is what print() prints. Returns the text of the
// run's one report when it is complete, which this rank may have made; empty if no rank completed
// it. Throws CommAborted if the store is gone.
std::string report_once(Store& store, const RankInfo& info, const std::string& text,
                        const FailureReporter& reporter, const ReportTimeouts& timeouts = {});

// For a rank that failed with `text` before it joined the run. Reaches the store, which rank 0
// starts for it, and makes the failure the verdict of the run. Ranks that fail with the same text
// as rank 0 are silent; where rank 0 is not reached every rank prints its line.
void report_before_joining(const RankInfo& info, const std::string& text,
                           const FailureReporter& reporter, const ReportTimeouts& timeouts = {});

}  // namespace trireme::comm
