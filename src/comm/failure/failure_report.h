// SPDX-License-Identifier: Apache-2.0
// Prints one message for the failure of a run, however many of its processes fail. Rank 0 reports
// if it is alive; the other ranks then exit silently, and report in its place if it is not. A rank
// that fails before it has joined the run notifies the others through the store, like one that
// fails later, so that they do not wait for it.
#pragma once

#include <functional>
#include <string>

#include "comm/store/store.h"
#include "comm/world/rank_env.h"

namespace trireme::comm {

struct FailureReporter {
  std::function<void()> print;       // the message, as the one report of the run
  std::function<void()> print_line;  // a line about this rank only
};

struct ReportTimeouts {
  double rank_zero_s = 3;  // before another rank reports in place of rank 0
  double printing_s = 3;   // for a rank that has begun to report, and for the others to be notified
  double joining_s = 5;    // for ranks that fail before they have joined to find each other
};

// For a rank of a run that has a verdict; `text` is what print() prints. Returns the text of the
// run's one report when it is complete, whether this rank or another has printed it; empty if no
// rank has. Throws CommAborted if the store is gone.
std::string report_once(Store& store, const RankInfo& info, const std::string& text,
                        const FailureReporter& reporter, const ReportTimeouts& timeouts = {});

// For a rank that failed with `text` before it joined the run. Reaches the store, which rank 0
// starts for it, and makes the failure the verdict of the run. Ranks that fail with the same text
// as rank 0 are silent; if rank 0 cannot be reached, every rank prints its line.
void report_before_joining(const RankInfo& info, const std::string& text,
                           const FailureReporter& reporter, const ReportTimeouts& timeouts = {});

}  // namespace trireme::comm
