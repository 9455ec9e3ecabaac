// SPDX-License-Identifier: Apache-2.0
// Shared by tests of stopped runs: one run, started by any launcher on any number of ranks, its
// processes, the signals that stop it, and the checkpoints that it leaves.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace trireme::tests {

using Words = std::vector<std::string>;

// ---- exit codes of train and launch
inline constexpr int exit_done = 0, exit_failed = 1, exit_bad_call = 2, exit_stopped = 75,
                     exit_fenced = 93;

// Returns TRIREME_SEED, or a random seed, and prints it under `name`.
unsigned printed_seed(const std::string& name);
bool is_full();  // TRIREME_FULL is set

// Writes the tiny model, its text and stops.toml: four workers (logical_dp), so that 1, 2 and 4
// ranks compute the same bits, a checkpoint every 10 steps, a log line every 5.
void write_stops_run(const Scratch&);
// Returns the bytes of the final weights of a run of `steps` steps on one rank without any stop.
// The learning rate does not depend on `steps`.
std::string quiet_weights(int64_t steps);
inline constexpr int64_t endless = 1000000;  // steps that no test reaches
std::string sha256_of(const std::string& bytes);

// Returns the step of the newest committed checkpoint in the folder run; -1 if there is none.
int64_t newest_checkpoint(const Scratch&);

// ---- reading a log
// Each returns the number of the last such line: "stopped   step N is saved"; "resume    step N
// of", or -1 if there was no checkpoint; "step: N".
std::optional<int64_t> saved_step(const std::string& log);
std::optional<int64_t> resumed_step(const std::string& log);
std::optional<int64_t> last_step(const std::string& log);

// ---- launchers

enum class LauncherKind : uint8_t {
  train,  // none: one process
  launch,
  torchrun,
  openmpi,
  mpich,
  srun
};
inline constexpr LauncherKind all_launchers[] = {LauncherKind::launch, LauncherKind::torchrun,
                                                 LauncherKind::openmpi, LauncherKind::mpich,
                                                 LauncherKind::srun};
std::string name_of(LauncherKind);
std::ostream& operator<<(std::ostream&, LauncherKind);  // for the names of tests
// Returns why the launcher cannot run here; empty if it can. Starts the Slurm cluster for srun.
std::string problem_of(LauncherKind);

// Returns a port that is free now, and so is the next one: under torchrun the program's store uses
// the one after MASTER_PORT. It is below the ephemeral ports: torch 1.13 may connect to itself by
// chance before its server is running.
int free_port_pair();
// Returns the variable by which Slurm's commands find the cluster. REQUIRES: srun has no problem.
std::string slurm_setting();

// ---- stops

enum class Stop : uint8_t {
  terminate,        // SIGTERM to the launcher; under srun by scancel
  terminate_twice,  // SIGTERM to all ranks and the launcher, twice
  interrupt,        // SIGINT as from a terminal, and again within 100 ms
  hang_up,          // SIGHUP to all
  dead_pipe,        // stdout and stderr lose their reader; some time later, `terminate`
  user_signal,      // SIGUSR2
  kill_rank,        // SIGKILL of a rank
  kill_launcher,    // SIGKILL of the launcher
};
inline constexpr Stop all_stops[] = {Stop::terminate, Stop::terminate_twice, Stop::interrupt,
                                     Stop::hang_up,   Stop::dead_pipe,       Stop::user_signal,
                                     Stop::kill_rank, Stop::kill_launcher};
std::string name_of(Stop);
// Returns the exit codes that the launcher may return for a run that saved after the stop.
std::vector<int> codes_of_saved(LauncherKind, Stop);
// True for a stop after which a run that has begun to train must have saved its last step.
bool is_request(Stop);

struct JobOptions {
  LauncherKind launcher = LauncherKind::launch;
  int ranks = 1;
  Words train_words;   // after "train stops.toml"
  Words launch_words;  // for `trireme launch` only
  double deadline_seconds = 300;
};

// One start of the run in the folder. The destructor ends all of its processes.
class Job {
 public:
  Job(const Scratch& scratch, JobOptions options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const JobOptions& options() const { return options_; }
  std::string log() const { return running_->out() + running_->err(); }
  bool wait_for(const std::function<bool()>& holds) { return running_->wait_for(holds); }
  // Waits until a step is logged; returns false if the launcher ended before.
  bool wait_for_step();
  void pass(double seconds);  // lets time pass while the log is read
  std::vector<pid_t> ranks();
  // Returns all processes of the launcher and of ranks that were observed so far.
  const std::set<pid_t>& seen() const { return seen_; }
  void signal_all(int number);
  bool has_ended() { return running_->has_ended(); }

  void stop(Stop stop, std::mt19937& random);
  // Waits until the launcher and all ranks have ended. Fails, and ends them, after three minutes.
  Outcome wait();

 private:
  // Returns the processes of the job with this verb of the program.
  std::vector<pid_t> processes_of(const std::string& verb) const;
  void kill_all();
  void signal_launcher(int number);
  void signal_ranks(int number);
  void signal_ranks_when_there(int number);      // waits for the first one
  bool cancel(const std::string& signal) const;  // signals a job of Slurm

  const Scratch& scratch_;
  JobOptions options_;
  std::string job_name_;  // also in the environment of its processes
  std::unique_ptr<Running> running_;
  std::function<void()> request_again_;
  std::set<pid_t> seen_;
};

}  // namespace trireme::tests
