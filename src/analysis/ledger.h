// SPDX-License-Identifier: Apache-2.0
// Ledger: where the device-hours, tokens and dollars of a run went, by class of time and by
// attempt, and what each failure cost. It is computed from phases.jsonl and events.jsonl alone. The
// ledger of an experiment is the sum of those of its runs (job.group).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/text/json_fwd.h"
#include "obs/files/event.h"
#include "obs/files/phase_log.h"

namespace trireme::analysis {

struct LedgerAttempt {
  int64_t attempt = 0;
  double begin = 0, end = 0;  // seconds since 1970; begins where the attempt before it ended
  std::string end_reason;     // "done", "stopped", "diverged", "failed", "died" or "running"
  std::string end_text;       // of the event that ended it; may be empty
  int64_t steps = 0;          // computed, repeated ones included
  int64_t last_step = 0;
  int64_t devices = 1;
  std::optional<double> price_per_hour;  // dollars of one device
  obs::PhaseSeconds seconds{};
  // The part of `seconds` that the next attempt recorded, because this one was killed before it
  // could do so.
  obs::PhaseSeconds unflushed{};
  // The part of class detect after its first step: that of this attempt's failure, not of the one
  // before it.
  double own_detect_seconds = 0;
  obs::TokenCounts tokens;

  // end - begin minus the sum of the classes: 0 unless spans are missing.
  double sum_error_seconds() const;
  double dollars_per_second() const;  // of all devices; 0 without a price
};

// The end of an attempt that failed or died.
struct LedgerFailure {
  int64_t attempt = 0;
  double time = 0;   // seconds since 1970
  int64_t step = 0;  // the last one whose end was recorded
  std::string reason;
  double lost_seconds = 0;  // of steps that had to be repeated
  int64_t lost_tokens = 0;
  std::optional<double> lost_dollars;  // of lost_seconds, detect_seconds and restart_seconds
  double detect_seconds = 0;
  double restart_seconds = 0;  // from the verdict to the end of the next attempt's first step
};

struct Ledger {
  std::string run, name, group;
  std::vector<LedgerAttempt> attempts;
  std::vector<LedgerFailure> failures;
  // Sums over attempts:
  obs::PhaseSeconds seconds{}, device_hours{}, dollars{};
  bool has_dollars = false;  // every attempt has a price
  obs::TokenCounts tokens;

  double useful_share() const;  // of the seconds; 0 if there are none
  double unknown_share() const;
};

// Adds up the records of one run, in the order of its files.
class LedgerBuilder {
 public:
  void add(const obs::PhaseRecord&);
  void add(const obs::Event&);
  // `is_running`: the process of the last attempt is alive.
  Ledger ledger(bool is_running) const;

 private:
  std::map<int64_t, LedgerAttempt> attempts_;
  std::map<int64_t, std::string> verdicts_;  // by attempt
};

// Reads the files of a run's folder. A folder of an older build gives an empty ledger. Whether the
// run is alive is judged as RunOwner does.
Ledger read_ledger(const std::filesystem::path& folder);
// The ledger of several runs together; attempts and failures are listed one after the other.
Ledger sum_of(const std::vector<Ledger>& runs);
base::Json to_json(const Ledger&);

}  // namespace trireme::analysis
