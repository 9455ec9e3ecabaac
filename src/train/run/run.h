// SPDX-License-Identifier: Apache-2.0
// Run: one attempt of a run on one rank, from its start (run_start.cpp) through its steps (run.cpp)
// to its end (run_finish.cpp). What it is made of stands in bench.h and incarnation.h, what follows
// a step in step_agenda.h, what a step logs in step_reporter.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "obs/files/signal_events.h"
#include "train/batches/batches.h"
#include "train/checkpointing/marks/run_marks.h"
#include "train/checkpointing/run_checkpoints.h"
#include "train/numerics/drift_plant.h"
#include "train/numerics/run_numerics.h"
#include "train/record/grace_budget.h"
#include "train/record/steps/recent_steps.h"
#include "train/record/steps/repeated_steps.h"
#include "train/report/run_output.h"
#include "train/report/step_clock.h"
#include "train/report/train_summary.h"
#include "train/run/control_signals.h"
#include "train/run/incarnation.h"
#include "train/run/state/recovery_times.h"
#include "train/run/state/timeline.h"
#include "train/run/step_agenda.h"
#include "train/run/step_reporter.h"
#include "train/run/train_hooks.h"
#include "train/signals/hardware_watch.h"
#include "train/signals/rank_sampler.h"
#include "train/trace/run_trace.h"

namespace trireme::train {

class Run {
 public:
  // All references must outlive it. Throws as Bench and Incarnation do.
  Run(const config::Config&, obs::RunMode, const TrainHooks&, const RankStart&);
  // Trains to the last step or to a stop. Call once. Collective.
  TrainSummary go();

 private:
  // Logs on the first rank only.
  void log(const std::string& text) const;

  void equip();  // builds what refers to the engine and the rank of the epoch
  // ---- start: until begin() no file changes
  CheckpointHooks checkpoint_hooks();
  void begin_marks();
  void record(const SavedGeneration&);
  void record(int64_t step, const PartnerNews&);
  void report(const GraceBudget::Line&) const;
  void describe() const;
  // Loads the checkpoint that is asked for, if there is one. Collective.
  void resume();
  // Replaces the engine, without a state, unless it is one for the steps after the checkpoint of
  // `step`, which has this state 'numerics'. Collective.
  void prepare_engine(int64_t step, const base::Json& numerics);
  // The engine has the state of a checkpoint that the run could have been resumed from. Runs the
  // steps after it again, with engines of their legs. Collective.
  void replay(const Resumed& from, int64_t last);
  void describe_plan();  // collective
  void check_trace() const;
  void begin();                 // collective
  void begin_ranks();           // collective
  void record_fatal_signals();  // collective
  Checkpointer::Begin begin_output();
  void open_output(const std::string& previous_run);

  // ---- epochs
  // Runs the attempt in the current group of ranks, which it builds if there is none. Returns false
  // if the group was aborted, and another epoch follows.
  bool run_epoch();
  // After the abort: keeps the engine's state if it is trusted, ends the incarnation, and waits for
  // the next epoch. Returns false if there is none.
  bool leave_epoch();
  std::optional<KeptState> trusted_state();
  // The engine has the state after `from`; none: of the start. The run continues there: for the
  // first time in this process, or from where its last epoch was aborted.
  void begin_attempt(const std::optional<Resumed>& from);
  void continue_attempt(const std::optional<Resumed>& from);
  // Logs and records that this epoch continues after `step`, and from which source.
  void record_epoch(int64_t step, const std::string& what, int64_t repeated = 0);
  // Watches for the first step that no rank has finished before. Collective.
  // In the register of the run.
  void record_resume();
  // Steps that were finished before this epoch, and that the first rank has not written because it
  // is a new process, or was behind: from other ranks. Collective.
  void recover_lines();
  void begin_recovery();
  // Records where the time until the end of this step went.
  void record_recovery(int64_t step, double finished_at);

  // ---- steps
  void run_attempt();
  obs::PhaseClock& phases() { return bench_.run_log.phases(); }
  void run_steps();
  // Runs steps up to the end of the engine's leg. Returns the step that follows: the next leg's
  // first, one that has to be repeated, or none after the last of the attempt.
  std::optional<int64_t> run_leg(const StepAgenda&, StepReporter&, int64_t first);
  // Tokens exceeded the experts' row budget by `rows`: steps from `from` on were not applied.
  struct Overflow {
    int64_t from = 0, rows = 0;
  };
  std::optional<Overflow> overflow();  // waits for the device
  // Takes these steps back, and rebuilds the engine with a larger budget. Collective.
  void enlarge_budget(const Overflow&);
  // Rebuilds the engine with other blocks in bf16. Collective.
  void change_precision(const std::vector<int>& bf16_blocks);
  // Around a change of the engine. Collective.
  void release_engine();
  void use_engine();
  // Replaces the engine if `step` belongs to another leg. Collective.
  void enter_leg_of(int64_t step);
  void check_first_batch(uint64_t own_hash, int64_t step);  // collective
  double learning_rate(int64_t step) const;
  int64_t predicted_sent_bytes() const;  // in the steps of this attempt with the current engine
  void queue_step(TrainBatches&, int64_t step);
  // Takes the signals of the steps that have ended. Waits for none, unless `waits` is true. Their
  // lines are not written: that of the current step may still be extended when it is logged.
  void take_signals(bool waits = false);
  // The same, and writes the lines.
  void record_steps(bool waits = false);
  // Compares a step with the one of the same number that was computed before.
  void compare_repeated(int64_t step, const engine::StepSignals&);
  void record_difference(int64_t step, const std::string& text, obs::Severity);
  void finish_trace();
  StepRequests exchanged_requests(const StepAgenda&, int64_t step);
  void record_ranks(int64_t step);  // the samples of the last exchange
  void act(int64_t step, const StepActions&, StepReporter&, const TrainBatches&);
  void validate(int64_t step, StepReporter&);  // collective
  // Copies the state to memory that outlives this process; an epoch that continues from it has
  // these blocks in bf16. Collective.
  void copy_state(int64_t step, const std::vector<int>& bf16_blocks);
  [[noreturn]] void end_fenced();

  // ---- end
  void count_steps();                            // sets the summary's counts
  void export_weights(const std::string& name);  // collective
  bool has_final_weights();                      // collective
  void find_divergence();                        // collective
  // Dates a divergence, which it returns as text, and marks the checkpoints since then bad. On the
  // first rank.
  std::string mark_divergence();
  void finish();                   // collective
  HostMemory host_memory() const;  // of this rank
  void summarise();                // collective

  const config::Config& config_;
  const TrainHooks& hooks_;
  RankStart start_;                // of the current epoch
  std::optional<KeptState> kept_;  // from the epoch before, until the engine has it
  Bench bench_;
  std::optional<Incarnation> parts_;  // none: the last epoch was aborted, the next is not formed
  RunNumerics numerics_;
  std::optional<DriftPlant> plant_;
  TrainSummary summary_;
  std::optional<RunOutput> output_;                 // on the first rank, from begin() on
  std::optional<RunMarks> marks_;                   // likewise, if the run saves
  std::optional<obs::SignalEvents> signal_events_;  // on the first rank of a process, likewise
  Timeline timeline_;
  std::optional<Resumed> resumed_;          // in the current epoch
  StateSource source_ = StateSource::none;  // likewise
  std::optional<KeptState::Point> live_;    // likewise: where ranks had the state in memory
  std::vector<int> fetched_;                // likewise: ranks whose copies another one had kept
  bool has_state_ = false;                  // the engine has the run's state after timeline_
  int64_t epoch_first_step_ = 0;            // 0: this process has had no state yet
  double epoch_seconds_ = 0;                // of steps, when the epoch began
  RecentSteps recent_;
  int64_t recorded_step_ = 0;           // when the last epoch was aborted
  double left_at_ = 0;                  // likewise, in seconds since 1970
  std::optional<EpochEntry> recovery_;  // on the first rank, until its first new step
  bool has_begun_ = false;              // the first files are written
  StepClock clock_;
  ControlSignals signals_;
  RepeatedSteps repeated_;
  std::map<int64_t, uint64_t> consumed_;  // samples of steps whose signals were not taken yet
  int64_t other_samples_step_ = 0;        // that this rank has repeated so; 0: none to report
  GraceBudget grace_;
  std::shared_ptr<HardwareWatch> hardware_;  // null: not watched
  double data_seconds_ = 0;                  // for which steps waited for batches
  int64_t sent_bytes_ = 0;                   // in steps
  int64_t predicted_sent_bytes_ = 0;         // in the steps of engines that were replaced
  int64_t sampled_step_ = 0;                 // of the last samples of ranks
};

}  // namespace trireme::train
