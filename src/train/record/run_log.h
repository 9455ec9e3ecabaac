// SPDX-License-Identifier: Apache-2.0
// RunLog: the record of one attempt: events.jsonl, phases.jsonl and ledger.json of the run's
// folder. Every rank has one; only the first rank opens it, and only then files are written. The
// phase clock runs from the start of the process, so that time before the folder is opened is
// charged, too.
//
// One thread uses it: the host thread of the rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/ledger.h"
#include "analysis/outcome/divergence.h"
#include "base/text/json.h"
#include "engine/step/step_signals.h"
#include "obs/files/event_log.h"
#include "obs/files/phase_log.h"
#include "obs/run_owner.h"
#include "train/record/alert_rules.h"
#include "train/record/earlier_attempts.h"
#include "train/record/run_listeners.h"
#include "train/record/step_alarm.h"

namespace trireme::train {

class RunLog {
 public:
  // `started`: when the process started, in seconds since 1970; 0: now. `folder`: the run's folder,
  // which this process holds, or empty on ranks that write nothing. Reads nothing else than the
  // lease of the folder's last owner.
  RunLog(const std::filesystem::path& folder, double started);
  // Ends the attempt: as failed unless ends() was called. Writes its last event and span.
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  struct Start {
    std::string name, group;  // of the run
    int ranks = 1, devices = 1;
    std::optional<double> price_per_hour;  // dollars of one device
    int64_t resumed_from = -1;             // -1: the run starts
    std::optional<AlertRules> rules;
    RunListeners* listeners = nullptr;  // receives events and alerts; must outlive this object
  };
  // Opens the files, and records the start and the time since the attempt before. `owner` must
  // outlive this object. Throws IoError.
  void open(const obs::RunOwner& owner, const Start& start);
  bool is_open() const { return events_.has_value(); }

  obs::PhaseClock& phases() { return phases_; }
  // Returns the class of a step's time: repeated, if an earlier attempt has computed it already, or
  // useful.
  obs::Phase phase_of(int64_t step) const;
  // Steps up to `step` will be computed again in this attempt.
  void repeats_until(int64_t step);
  // Passes the steps and times that rules of alerts.* need.
  void add_log(int64_t step, double step_seconds);
  void saved();

  // An event, without what this object fills in: time, attempt, epoch and node.
  struct Note {
    obs::EventKind kind = obs::EventKind::start;
    int64_t step = -1;
    obs::Severity severity = obs::Severity::info;
    std::string text{};  // human-readable, one line
    base::Json data = base::Json::object();
  };
  // Does nothing unless the log is open, like all functions below. Throws Fenced.
  // Returns the line.
  std::string add(Note note);
  // The host waited so long for batches, in the current phase.
  void waited_for_data(double seconds);
  // Steps waited so long for slow ranks (stragglers.h).
  void waited_for_ranks(double seconds);
  // A step has ended.
  void add_step(int64_t step, const engine::StepSignals& signals);
  // Returns what may be wrong with the numbers of the steps since the last call: the last alarm.
  std::optional<StepAlarm> take_alarm();
  // Returns whether the numbers of the attempt have diverged: empty, or since when and how. An
  // attempt without steps has what the one before it had. `goes_on`: see Divergence.
  std::string divergence(bool goes_on) const;
  // Records the time and steps so far if the last record is old enough, or if `now` is true.
  void flush(bool now = false);

  // Since when the numbers of a run that has diverged are wrong, for its last event.
  void dates_divergence(int64_t onset) { onset_ = onset; }
  // How the attempt ends, unless an exception follows. `reason`: see reason_of() in ending.h.
  void ends(std::string reason, std::string text);
  // It ends because of an exception.
  void fails(std::string text, std::string reason = "failed");

  const std::string& run() const { return run_; }

 private:
  void move_useful(obs::Phase to, double seconds);
  bool guarded(const std::function<void()>& write);
  void write_span();
  void write_ledger();
  void add_alert(int64_t step, const std::optional<Alert>& alert);
  obs::Event filled(Note note) const;
  void watch_divergence(int64_t step, const engine::StepSignals& signals);
  void add_skip(int64_t step, const engine::StepSignals& signals);
  void add_scale(int64_t step, const engine::StepSignals& signals);

  const std::filesystem::path folder_;
  const double alive_until_;  // the last owner's last sign of life
  double started_;
  obs::PhaseClock phases_;

  // ---- from open() on
  const obs::RunOwner* owner_ = nullptr;
  std::string run_, name_, group_, node_;
  std::optional<obs::EventLog> events_;
  std::optional<obs::PhaseLog> spans_;
  analysis::LedgerBuilder ledger_;
  std::optional<AlertRules> rules_;
  RunListeners* listeners_ = nullptr;
  analysis::Divergence divergence_;
  bool has_diverged_ = false;       // at the last step
  std::optional<StepAlarm> alarm_;  // since take_alarm()
  std::string earlier_divergence_;  // of the attempt before
  double overlap_ = 0;  // seconds before the end of the attempt before, which are charged there
  int64_t repeated_until_ = 0;

  // ---- since the last span
  double flushed_at_ = 0, ledger_at_ = 0;
  int64_t first_step_ = 0, last_step_ = 0;
  int64_t steps_ = 0, useful_skipped_ = 0, useful_steps_ = 0;
  obs::TokenCounts tokens_;
  int64_t skipped_in_a_row_ = 0;
  int64_t last_recorded_step_ = -1;
  double last_step_at_ = 0;  // when it ended, in seconds since 1970

  std::string end_reason_ = "failed", end_text_;
  int64_t onset_ = -1;  // step; -1: no divergence was dated
};

}  // namespace trireme::train
