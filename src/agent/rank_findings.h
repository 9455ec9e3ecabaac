// SPDX-License-Identifier: Apache-2.0
// RankFindings: what the launcher of a node knows of the ranks of an epoch: what all of them report
// to the store, and what this process has seen of those that it started.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/crew.h"
#include "agent/job.h"
#include "agent/rules/elastic_times.h"
#include "comm/failure/verdict.h"
#include "comm/store/store.h"

namespace trireme::agent {

// Ended neither with exit code 0 nor because of a request to stop.
bool is_broken(const RankProcesses::State& state);

class RankFindings {
 public:
  // Both must outlive it.
  RankFindings(const JobOptions& options, const Crew& crew)
      : options_(options), crew_(crew), silent_limit_(elastic_times(options.detect_s).silence) {}

  // When the job was started, in seconds since 1970: older records are not about its ranks.
  void set_started(double wall_seconds) { started_ = wall_seconds; }
  void enter_epoch() { causes_.clear(); }

  // ---- of this node
  bool has_bad_ending() const;
  // It has said nothing that could still be on its way, as one that ended by itself may have.
  bool is_any_rank_killed() const;

  // ---- of all nodes
  using Reports = std::vector<comm::RankReport>;
  // Returns the reports by rank. Throws CommAborted. The silence of a rank of this node counts a
  // quarter while the rank lacks a processor.
  Reports reports(comm::Store& epoch_store);
  // The seconds between two looks at all reports: with many ranks they would load the store.
  double listen_seconds() const;
  // Returns a verdict about a rank that is silent, or hangs; none: there is no such rank, or one
  // that has died is the reason.
  std::optional<comm::Verdict> stall_of(const Reports& reports) const;
  // Determines which rank failed first.
  comm::Verdict verdict_of(const Reports& reports) const;

 private:
  const std::string& recorded_cause(int rank);

  const JobOptions& options_;
  const Crew& crew_;
  const double silent_limit_;  // in seconds without a heartbeat
  double started_ = 0;
  std::map<int, std::string> causes_;  // recorded_cause(), by rank
};

bool has_died(const RankFindings::Reports& reports);
// Whether every rank has ended, or has reported in the last `seconds`.
bool have_all_reported(const RankFindings::Reports& reports, double seconds);

}  // namespace trireme::agent
